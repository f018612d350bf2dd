"""Sparsity: the Jacobian has no nonzero outside the pattern that the op declares.

A declaration may be right up to a size, with the attributes of the examples, or but for a branch that holds in a small
part of the domain. So it is compared at all points that other checks look at: those that are spread over the domain,
special ones, those of many sizes, and those with other attributes.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from app.autodiff.derivatives import values_of
from app.autodiff.point import Point
from app.autodiff.sparse_matrices import Missed, jacobian, nonzeros
from app.autodiff.sparsity import colored
from app.autodiff.sparsity_search import declared
from app.errors import OpFailed, Unprocessable
from app.gradcheck import choices, sizes
from app.gradcheck.sample import sample_at
from app.gradcheck.target import Target
from pullback.gradcheck.verdict import Finding, Subject
from pullback.wording import counted

NAME = "sparsity"


class _Place(NamedTuple):
    """A point, and in words what is special about it; its attributes, if they are not those of the target."""

    point: Point
    words: str = ""
    attrs: Mapping[str, Any] | None = None


def check(target: Target) -> Iterator[Finding]:
    """Compare a random product of the Jacobian with that of its declared nonzeros, at each point."""
    subject, shapes = Subject(NAME, 1, dtype=target.widest), list[tuple[tuple[int, ...], ...]]()
    if target.op.sparsity is None:
        yield Finding(subject, "skipped", "the op declares no sparsity")
        return
    for point, words, attrs in _places(target):
        target.checkpoint()
        try:
            if _is_compared(target, point, is_drawn=bool(words)):
                shapes.append(tuple(x.shape for x in point.inputs.values()))
        except (Missed, OpFailed) as error:
            yield Finding(subject, "fail", f"the declared sparsity is wrong{words}: {error}", attrs=attrs)
            return
    if shapes:
        where = f"{counted(len(shapes), 'point')} of {counted(len({*shapes}), 'size')}"
        yield Finding(subject, "pass", f"no nonzero outside the declared sparsity at {where}", points=len(shapes))
    else:
        yield Finding(subject, "skipped", "no point has finite derivatives")


def _places(target: Target) -> Iterator[_Place]:
    yield from (_Place(sample.point) for sample in target.samples)
    if target.inputs is not None:
        return
    spread = (*target.sweep_samples, *target.near_samples, *target.complex_samples)
    yield from (_Place(sample.point, " at another point") for sample in spread)
    if target.op.sample is None:
        yield from (_Place(sample.point, " at a special point") for sample in target.special_samples)
    for each in (sizes.points(target), *(sizes.long_points(target, lengths) for lengths in sizes.BLOCKS)):
        yield from (_Place(point, f" at {words}") for words, point in each)
    yield from _with_other_attributes(target) if target.is_first else ()


def _with_other_attributes(target: Target) -> Iterator[_Place]:
    def points(attrs: Mapping[str, Any]) -> list[Point]:
        with suppress(Unprocessable):
            return replace(target, attrs=attrs, has_example=False).points
        return []

    op, seed = target.op, target.options.seed
    for attrs in (*choices.of_no_example(op, seed), *choices.combinations(op, seed, lambda each: bool(points(each)))):
        yield from (_Place(point, f" with {dict(attrs)}", attrs) for point in points(attrs))


def _is_compared(target: Target, point: Point, *, is_drawn: bool) -> bool:
    """Return whether the Jacobian has been compared: it must be finite, and the op must accept a point that is drawn.

    Raises ``Missed`` or ``OpFailed`` where the declaration is wrong.
    """
    if is_drawn and not _accepts(point):
        return False
    with suppress(Unprocessable):
        matrix = jacobian(point, point.spec.outputs.differentiable, point.spec.inputs.differentiable)
        pattern = declared(matrix)
        if pattern is not None:
            nonzeros(matrix, colored(pattern, target.checkpoint, has_columns=True), target.checkpoint)
        return True
    return False


def _accepts(point: Point) -> bool:
    """Return whether a point has numbers, values and gradients: what fails otherwise is a matter of other checks."""
    with suppress(Unprocessable, OpFailed):
        _ = values_of(point).run()  # refuses outputs of impossible shapes
        sample = sample_at(point, np.random.default_rng(0), last="gradients")
        return bool(sample.values) and all(x.size for x in point.inputs.values())
    return False
