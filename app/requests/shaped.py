"""What follows from a plan and the shapes of its tensors: the evaluation, and how the response is laid out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from app.autodiff.evaluation import Evaluation
from app.autodiff.packing import Whole
from app.requests.answering import Reply
from app.runtime.modes import KeyedArrays
from app.tensors.layouts import KeyedLayout
from ops import Array

# The most bytes of the text around the numbers of a response that is kept.
MAX_CONSTANTS = 4096

Written: TypeAlias = dict[str, tuple[Reply, KeyedLayout]]
"""Responses by their form, without their numbers."""


class Shaped(NamedTuple):
    """What follows from a plan and the shapes of the tensors of a request: its evaluation, without the numbers.

    ``positions`` are those of its tensors among those of the request, as ``Evaluation.at`` needs them.
    """

    evaluation: Evaluation[Any]
    positions: Sequence[Mapping[str, int]]
    is_long: bool
    written: Written


def shaped_by(evaluation: Evaluation[Any], tensors: Sequence[Array], is_long: bool) -> Shaped | None:
    """Return what follows from the shapes of the tensors of a request; ``None`` if it depends on their numbers."""
    positions = {id(tensor): i for i, tensor in enumerate(tensors)}
    spec, (packing, _) = evaluation.point.spec, evaluation.packed
    numbers = {*map(id, spec.numbers), *map(id, spec.held.values())}
    if evaluation.batched or not {id(leaf) for leaf in evaluation.leaves} <= positions.keys() | numbers:
        return None
    if not isinstance(packing, Whole):
        leaves = zip(evaluation.leaves, packing.units, strict=True)
        if any(unit is None and id(leaf) not in numbers for leaf, unit in leaves):
            return None
    places = [
        {name: positions[id(tensor)] for name, tensor in each.items() if id(tensor) in positions}
        for each in (evaluation.point.inputs, *evaluation.seeds)
    ]
    # The copies have what this one knows, and the one that is kept has no numbers.
    _ = evaluation.batch_key
    bare = [np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape) for tensor in tensors]
    return Shaped(evaluation.at(bare, places), places, is_long, {})


def write_as_before(
    finish: Callable[[KeyedArrays], Any],
    write: Callable[[Any], Reply],
    written: Written,
    form: str,
    results: KeyedArrays,
) -> Reply:
    """Return the response to the results of an evaluation, by the layout of an earlier one if there is one."""
    if (known := written.get(form)) is not None:
        reply, keyed = known
        if (layout := keyed.with_results(results)) is not None:
            return reply._replace(pieces=layout.pieces(), layout=layout)
    reply = write(finish(results))
    keyed = reply.layout.keyed(results) if form and reply.layout is not None else None
    if keyed is not None and sum(map(len, keyed.layout.constants)) <= MAX_CONSTANTS:
        written[form] = reply._replace(pieces=(), layout=None), keyed
    return reply
