"""Coverage: the share of the numbers that each check could compare, and the verdict on the op that follows."""

from collections import Counter
from collections.abc import Iterable

from pullback.findings import Check, Coverage
from pullback.gradcheck.verdict import Verdict, worst_verdict

BY_SLOT = ("derivative", "second", "linearity")
"""Checks that judge each slot by itself; the slot of any other finding is that of its worst number."""


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
