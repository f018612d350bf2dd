"""Retrace: a fresh trace of the op gives the same values, to the last bit.

Python runs while TensorFlow traces. An op that counts its calls, or reads the clock, is another function in each trace.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from app.autodiff.evaluation import Evaluation, as_found
from app.autodiff.programs import Program
from app.errors import Overloaded
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place
from app.runtime import modes
from app.runtime.calculus import Calculus
from app.runtime.modes import Results
from app.runtime.op_errors import op_errors
from ops import Tensor

NAME = "retrace"
TURNS = 2
"""How often to trace again. These traces are kept like all others, so that many checks take no more memory than one."""


@dataclass(frozen=True)
class Retraced:
    """A program that no other program shares its traces with."""

    program: Program
    turn: int

    @property
    def owner(self) -> str:
        """The op's name."""
        return self.program.owner

    @property
    def orders(self) -> int:
        """The number of nested pullbacks."""
        return self.program.orders

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each leaf."""
        return self.program.ranks

    @property
    def runs_eagerly(self) -> bool:
        """Always false: it is about traces."""
        return False

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results."""
        return self.program.build(calculus, leaves)


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
    found = Evaluation(
        sample.point, "second", as_found, cotangents=sample.cotangents, along=sample.vectors, outputs=True
    )
    programs = [found.program, *(Retraced(found.program, turn) for turn in range(TURNS))]
    with op_errors(target.op.name):
        first, *others = (modes.run(program, "graph", found.leaves, target.device) for program in programs)
    for (what, name), value in first.items():
        if value is None or str(what).endswith("shape"):
            continue
        output = name if what in ("outputs", "slots") else None
        for other in others:
            again = other.get((what, name))
            comparison.add(
                np.full_like(value, np.nan) if again is None else again,
                value,
                np.zeros(()),
                of_output=output,
                of_input=None if output else name,
                calls=calls(sample, (what, name)),
            )
