"""Sparsity: the Jacobian has no nonzero outside the pattern that the op declares."""

from collections.abc import Iterator

from app.autodiff.known_sparsity import declared
from app.autodiff.sparse_matrices import Missed, jacobian, nonzeros
from app.autodiff.sparsity import colored
from app.errors import OpFailed, Unprocessable
from app.gradcheck.target import Target
from pullback.gradcheck.verdict import Finding, Subject

NAME = "sparsity"


def check(target: Target) -> Iterator[Finding]:
    """Compare a random product of the Jacobian with that of its declared nonzeros, at each sample."""
    subject, count = Subject(NAME, 1, dtype=target.widest), 0
    if target.op.sparsity is None:
        yield Finding(subject, "skipped", "the op declares no sparsity")
        return
    for sample in target.samples:
        target.checkpoint()
        point = sample.point
        try:
            matrix = jacobian(point, point.spec.outputs.differentiable, point.spec.inputs.differentiable)
            pattern = declared(matrix)
            if pattern is not None:
                nonzeros(matrix, colored(pattern, target.checkpoint, has_columns=True), target.checkpoint)
        except Unprocessable:
            continue  # no derivative here is finite, or linear: nothing can be compared
        except (Missed, OpFailed) as error:
            yield Finding(subject, "fail", f"the declared sparsity is wrong: {error}")
            return
        count += 1
    if count:
        yield Finding(subject, "pass", f"no nonzero outside the declared sparsity at {count} points", points=count)
    else:
        yield Finding(subject, "skipped", "no point has finite derivatives")
