"""One entry for each cause: findings with the same check, verdict and sentence are one entry with several places."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from app.tensors.dtypes import COMPLEX, DTYPES
from ops import MODES
from pullback.findings import Check

_DTYPES_AND_MODES = re.compile(rf"\b(?:{'|'.join([*DTYPES, *COMPLEX])})\b|\bmode (?:{'|'.join(MODES)})\b")


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
