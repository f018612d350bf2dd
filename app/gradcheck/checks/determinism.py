"""Determinism: evaluating twice gives the same values, to the last bit or to the rounding of their terms."""

from collections.abc import Iterator

from app.autodiff.derivatives import values_up_to
from app.gradcheck import agreement, graphs
from app.gradcheck.agreement import Repeated
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.runtime import modes
from app.runtime.op_errors import op_errors
from pullback.gradcheck.verdict import Finding, Subject

NAME = "determinism"


def check(target: Target) -> Iterator[Finding]:
    """Evaluate twice in the widest dtype, and twice in the op's default one."""
    for dtype in dict.fromkeys((target.widest, target.op.dtypes[0])):
        narrow = (target.in_dtype(subsample, dtype) for subsample in target.subsamples)
        samples = [sample for sample in narrow if sample is not None]
        repeated = [Repeated(sample, sample.again().values, sample.values) for sample in samples]
        why = ""
        if any(not each.is_equal(key) for each in repeated for key in each.before):
            why = _random_kernels(target, samples[0])
        yield agreement.finding(Subject(NAME, dtype=dtype), repeated, "the second evaluation", "the first", why=why)


def _random_kernels(target: Target, sample: Sample) -> str:
    """Return which kernels draw random numbers, in words, "" if none does."""
    evaluation = values_up_to(sample.last, sample.point, sample.cotangents, sample.vectors)
    with op_errors(target.op.name):
        trace = modes.trace_of(evaluation.program, "graph", evaluation.leaves, target.options.device)
        kinds = graphs.random_kernels(trace)
    return f"the op draws random numbers: {', '.join(kinds)}" if kinds else ""
