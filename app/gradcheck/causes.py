"""What a report says of its findings: one entry for each cause, and the verdict on the op that follows."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from app.errors import MAX_TEXT, OpFailed, Unprocessable, clip
from app.gradcheck.graphs import narrowing_casts
from app.runtime.messages import text_of, without_paths
from app.runtime.modes import Trace
from app.runtime.source_lines import author_line, own_line
from app.tensors.dtypes import COMPLEX, DTYPES
from ops import MODES, Op
from pullback import __version__
from pullback.findings import Check, Coverage
from pullback.gradcheck.verdict import Finding, Subject, Verdict, worst_verdict

BY_SLOT = ("derivative", "second", "linearity")
"""Checks that judge each slot by itself; the slot of any other finding is that of its worst number."""
_DTYPES_AND_MODES = re.compile(rf"\b(?:{'|'.join([*DTYPES, *COMPLEX])})\b|\bmode (?:{'|'.join(MODES)})\b")
MAX_MESSAGE, MOST_CHANGES = 160, 3
NEARLY_RIGHT = 2.0**-16
"""How far off, as a fraction, a number is at most that narrower rounding explains."""


def shares(entries: Iterable[Check]) -> list[Coverage]:
    """Return how many points there were, and how many were compared to how many digits, by check, order and dtype."""
    groups: dict[tuple[str, int | None, str], list[Check]] = {}
    for entry in entries:
        if entry.points and entry.verdict != "skipped":
            groups.setdefault((entry.check, entry.order, entry.dtype), []).append(entry)
    return [
        Coverage(*place, sum(e.points for e in group), sum(e.compared for e in group), _digits(group))
        for place, group in groups.items()
    ]


def _digits(group: Iterable[Check]) -> dict[int, int]:
    digits = Counter[int]()
    for entry in group:
        digits.update(entry.digits)
    return dict(sorted(digits.items()))


def verdict_on_op(entries: Iterable[Check]) -> Verdict:
    """Return the verdict on an op: a check that is inconclusive with some attributes may pass with others."""
    found: dict[tuple[object, ...], set[str]] = {}
    for entry in entries:
        check = entry.check
        slot = (entry.output, entry.input) if check in BY_SLOT else None
        # The order of contract is that of what fails, if anything.
        order = None if check == "contract" else entry.order
        found.setdefault((check, order, slot, entry.mode, entry.dtype), set()).add(entry.verdict)
    return worst_verdict(
        [verdict for each in found.values() for verdict in each if verdict != "inconclusive" or "pass" not in each]
    )


def merge(entries: Iterable[Check]) -> list[Check]:
    """Return the entries, those of one cause merged into the first.

    Sentences may differ in the names of dtypes and modes. What is counted adds up; all else is that of the first.
    Entries that pass stay apart.
    """
    groups, by_cause = list[list[Check]](), dict[tuple[str, ...], list[Check]]()
    for entry in entries:
        cause = (entry.check, entry.verdict, _DTYPES_AND_MODES.sub("…", entry.sentence))
        if entry.verdict == "pass" or cause not in by_cause:
            by_cause[cause] = []
            groups.append(by_cause[cause])
        by_cause[cause].append(entry)
    return [*map(_merged, groups)]


def _merged(group: list[Check]) -> Check:
    inconclusive, digits = Counter[str](), Counter[int]()
    for entry in group:
        inconclusive.update(entry.inconclusive)
        digits.update(entry.digits)
    return replace(
        group[0],
        points=sum(entry.points for entry in group),
        compared=sum(entry.compared for entry in group),
        evaluations=sum(entry.evaluations for entry in group),
        seconds=round(sum(entry.seconds for entry in group), 6),
        inconclusive=dict(inconclusive),
        digits=dict(digits),
        places=[place for entry in group for place in entry.places],
    )


def changes(changed: Sequence[str], subject: Subject, op: Op) -> Finding:
    """Return the finding on an op whose functions have changed what all code shares, such as ``tf.sigmoid``."""
    names = ", ".join(changed[:MOST_CHANGES]) + (", ..." if len(changed) > MOST_CHANGES else "")
    return Finding(subject, "fail", f"op {op.name} changes {names} for all ops; define another name instead")


def with_narrow_cause(finding: Finding, trace: Callable[[], Trace]) -> Finding:
    """Return a finding in float64 that says so if its number is nearly right, and the op rounds to a narrower dtype."""
    worst = finding.worst
    if finding.verdict != "fail" or finding.subject.dtype != "float64" or worst is None:
        return finding
    is_near = abs(worst.analytic - worst.numeric) <= NEARLY_RIGHT * abs(worst.numeric)
    if not (is_near and (found := narrowing_casts(trace()))):
        return finding
    cure = f'declare dtypes=("{found[-1]}",), or compute in float64'
    return replace(finding, sentence=f"{finding.sentence}; the op rounds to {found[-1]} inside: {cure}")


def failure(error: BaseException, subject: Subject, op: Op, seed: int) -> Finding:
    """Return the finding on a check that an exception ends.

    It is a fail with the author's line if the op is at fault, else an error with all that a report of it needs.
    """
    if isinstance(error, OpFailed | Unprocessable):
        return Finding(subject, "fail", error.located if isinstance(error, OpFailed) else error.detail)
    text = f"{type(error).__name__}: {clip(without_paths(text_of(error)), MAX_MESSAGE)}".removesuffix(": ")
    if line := author_line(error):
        return Finding(subject, "fail", clip(f"op {op.name} raised {text} ({line})", MAX_TEXT))
    sentence = (
        f"the check broke off with {text} ({own_line(error)}), a fault of the checker, not of the op; please report "
        f"it with op {op.name}, check {subject.check}, seed {seed}, Pullback {__version__}"
    )
    return Finding(subject, "error", sentence)
