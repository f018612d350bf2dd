"""Coverage: the share of the numbers that each check could compare, and the verdict on the op that follows."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from app.gradcheck.places import Document
from pullback.gradcheck.verdict import Verdict, worst_verdict

BY_SLOT = ("derivative", "second", "linearity")
"""Checks that judge each slot by itself; the slot of any other finding is that of its worst number."""


def shares(entries: Iterable[Document]) -> list[dict[str, Any]]:
    """Return how many points there were, and how many were compared to how many digits, by check, order and dtype."""
    counts: dict[tuple[str, int | None, str], list[int]] = {}
    digits: dict[tuple[str, int | None, str], Counter[str]] = {}
    for entry in entries:
        if entry["points"] and entry["verdict"] != "skipped":
            place = entry["check"], entry["order"], entry["dtype"]
            both = counts.setdefault(place, [0, 0])
            digits.setdefault(place, Counter()).update(entry["digits"])
            both[0] += entry["points"]
            both[1] += entry["compared"]
    return [
        {
            **{"check": check, "order": order, "dtype": dtype, "points": points, "compared": compared},
            "digits": dict(sorted(digits[check, order, dtype].items(), key=lambda item: int(item[0]))),
        }
        for (check, order, dtype), (points, compared) in counts.items()
    ]


def verdict_on_op(entries: Iterable[Document]) -> Verdict:
    """Return the verdict on an op: a check that is inconclusive with some attributes may pass with others."""
    found: dict[tuple[object, ...], set[Verdict]] = {}
    for entry in entries:
        check = entry["check"]
        slot = (entry["output"], entry["input"]) if check in BY_SLOT else None
        # The order of contract is that of what fails, if anything.
        order = None if check == "contract" else entry["order"]
        found.setdefault((check, order, slot, entry["mode"], entry["dtype"]), set()).add(entry["verdict"])
    return worst_verdict(
        [verdict for each in found.values() for verdict in each if verdict != "inconclusive" or "pass" not in each]
    )
