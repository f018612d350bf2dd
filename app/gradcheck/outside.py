"""Points outside of what ``Op.sample`` draws.

An op that declares ``sample`` is meant for the points that it draws. Special points that the checks make by hand, such
as zeros and ties, may leave that domain: an indefinite matrix has no Cholesky factor.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from app.gradcheck.target import Target
from pullback.gradcheck.verdict import Finding

NOTE = (
    "a note, not a failure, because the point is made by hand and Op.sample may never draw it: "
    "if the op is meant for it, give an example there"
)


def noted(target: Target, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings at points made by hand; the failures of an op that declares ``sample`` are notes."""
    for finding in findings:
        if target.op.sample is not None and finding.verdict == "fail":
            yield replace(finding, verdict="skipped", sentence=f"{finding.sentence}; {NOTE}")
        else:
            yield finding
