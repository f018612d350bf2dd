"""Retrace: a fresh trace of the op gives the same values, to the last bit.

Python runs while TensorFlow traces. An op that counts its calls, or reads the clock, is another function in each trace.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.autodiff.derivatives import second_order_values
from app.errors import Overloaded
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place
from app.runtime import modes
from app.runtime.op_errors import op_errors

NAME = "retrace"
TURNS = 2
"""How often to trace again. These traces are kept like all others, so that many checks take no more memory than one."""


def check(target: Target) -> Iterator[Finding]:
    """Compare two more traces with the first, in the widest dtype and mode graph."""
    comparison = Comparison(Place(NAME, dtype=target.widest))
    try:
        for sample in target.subsamples:
            _compare(target, comparison, sample)
    except Overloaded as error:
        yield Finding(comparison.place, "skipped", error.detail)
        return
    yield comparison.finding("a fresh trace", "the first trace")


def _compare(target: Target, comparison: Comparison, sample: Sample) -> None:
    found = second_order_values(sample.point, sample.cotangents, sample.vectors)
    programs = [replace(found.program, turn=turn) for turn in range(TURNS + 1)]
    with op_errors(target.op.name):
        runs = (modes.run(program, "graph", found.leaves, target.device) for program in programs)
        first, *others = map(found.finish, runs)
    for (what, name), value in first.items():
        output = name if what in ("outputs", "slots") else None
        for other in others:
            comparison.add(
                other[what, name],
                value,
                np.zeros(()),
                of_output=output,
                of_input=None if output else name,
                calls=calls(sample, (what, name)),
            )
