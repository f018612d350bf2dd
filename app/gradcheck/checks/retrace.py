"""Retrace: a fresh trace of the op gives the same values, to the last bit.

Python runs while TensorFlow traces. An op that counts its calls, or reads the clock, is another function in each trace.
"""

from collections.abc import Iterator

from app.autodiff.derivatives import values_up_to
from app.autodiff.programs import program_of
from app.gradcheck.agreement import add_bits
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place
from app.runtime import modes
from app.runtime.op_errors import op_errors

NAME = "retrace"
RETRACES = 2
"""How often to trace again. These traces are kept like all others, so that many checks take no more memory than one."""


def check(target: Target) -> Iterator[Finding]:
    """Compare two more traces with the first, in the widest dtype and mode graph."""
    comparison = Comparison(Place(NAME, dtype=target.widest))
    for sample in target.subsamples:
        evaluation = values_up_to(sample.last, sample.point, sample.cotangents, sample.vectors)
        one = evaluation.program
        fields = one.op, one.dtype, one.static, one.transforms, one.kept, one.batched
        programs = [program_of((*fields, turn)) for turn in range(RETRACES + 1)]
        with op_errors(target.op.name):
            runs = (modes.run(program, "graph", evaluation.leaves, target.device) for program in programs)
            first, *others = map(evaluation.finish, runs)
        for values in others:
            add_bits(comparison, sample, values, first)
    yield comparison.finding("a fresh trace", "the first trace")
