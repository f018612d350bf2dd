"""Retrace: a fresh trace of the op gives the same values, to the last bit or to the rounding of their terms.

Python runs while TensorFlow traces. An op that counts its calls, or reads the clock, is another function in each trace.
"""

from collections.abc import Iterator

from app.autodiff.derivatives import values_up_to
from app.autodiff.programs import program_of
from app.gradcheck import agreement, graphs
from app.gradcheck.agreement import Repeated
from app.gradcheck.target import Target
from app.runtime import modes
from app.runtime.op_errors import op_errors
from pullback.gradcheck.verdict import Finding, Subject

NAME = "retrace"
RETRACES = 2
"""How often to trace again. These traces are kept like all others, so that many checks take no more memory than one."""
OTHER_GRAPH = "a fresh trace has other operations or constants, so the op's Python keeps a state"


def check(target: Target) -> Iterator[Finding]:
    """Compare two more traces with the first, in the widest dtype and mode graph."""
    repeated, why = list[Repeated](), ""
    for sample in target.subsamples:
        evaluation = values_up_to(sample.last, sample.point, sample.cotangents, sample.vectors)
        one, leaves = evaluation.program, evaluation.leaves
        fields = one.op, one.dtype, one.static, one.transforms, one.kept, one.batched
        programs = [program_of((*fields, retrace)) for retrace in range(RETRACES + 1)]
        with op_errors(target.op.name):
            runs = (modes.run(program, "graph", leaves, target.options.device) for program in programs)
            first, *others = map(evaluation.finish, runs)
            again = [Repeated(sample, values, first) for values in others]
            if any(not each.is_equal(key) for each in again for key in first):
                graph, *fresh = (modes.trace_of(each, "graph", leaves, target.options.device) for each in programs)
                known = graphs.contents(graph)
                why = OTHER_GRAPH if any(graphs.contents(other) != known for other in fresh) else why
        repeated += again
    subject = Subject(NAME, dtype=target.widest)
    yield agreement.finding(subject, repeated, "a fresh trace", "the first trace", why=why)
