"""Coverage: the share of the numbers that each check could compare, and the verdict on the op that follows."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from app.gradcheck.verdict import Finding, Place, Verdict, worst_verdict

BY_SLOT = ("derivative", "second", "linearity")
"""Checks that judge each slot by itself; the slot of any other finding is that of its worst number."""


def shares(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return how many points there were, and how many were compared, by check, order and dtype."""
    counts: dict[tuple[str, int | None, str], list[int]] = {}
    for finding in findings:
        place = finding.place
        if finding.points and finding.verdict != "skipped":
            both = counts.setdefault((place.check, place.order, place.dtype), [0, 0])
            both[0] += finding.points
            both[1] += finding.compared
    return [
        {"check": check, "order": order, "dtype": dtype, "points": points, "compared": compared}
        for (check, order, dtype), (points, compared) in counts.items()
    ]


def verdict_on_op(findings: Iterable[Finding]) -> Verdict:
    """Return the verdict on an op: a check that is inconclusive with some attributes may pass with others."""
    found: dict[Place, set[Verdict]] = {}
    for finding in findings:
        place = finding.place
        if place.check not in BY_SLOT:
            place = replace(place, output=None, input=None)
        if place.check == "contract":
            # Its order is that of what fails, if anything.
            place = replace(place, order=None)
        found.setdefault(place, set()).add(finding.verdict)
    return worst_verdict(
        [verdict for each in found.values() for verdict in each if verdict != "inconclusive" or "pass" not in each]
    )
