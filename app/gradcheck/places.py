"""One entry for each cause: findings with the same check, verdict and sentence are one entry with several places."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

from app.tensors.dtypes import DTYPES
from ops import MODES

Document: TypeAlias = dict[str, Any]

PLACE_FIELDS = ("attrs", "mode", "dtype", "device", "order", "output", "input")
SUMMED_FIELDS, COUNTED_FIELDS = ("points", "compared", "evaluations", "seconds"), ("inconclusive", "digits")
_DTYPES_AND_MODES = re.compile(rf"\b(?:{'|'.join(DTYPES)})\b|\bmode (?:{'|'.join(MODES)})\b")


def merge(entries: Iterable[Document]) -> list[Document]:
    """Return the entries with their ``places``; those of one cause are merged into the first.

    Sentences may differ in the names of dtypes and modes. What is counted adds up; all else is that of the first.
    Entries that pass stay apart.
    """
    merged: list[Document] = []
    by_cause: dict[tuple[str, ...], Document] = {}
    for entry in entries:
        cause = (entry["check"], entry["verdict"], _DTYPES_AND_MODES.sub("…", entry["sentence"]))
        place = {name: entry[name] for name in PLACE_FIELDS}
        first = by_cause.get(cause)
        if entry["verdict"] == "pass" or first is None:
            by_cause[cause] = first = {**entry, "places": [place]}
            merged.append(first)
        else:
            first |= {name: first[name] + entry[name] for name in SUMMED_FIELDS}
            for name in COUNTED_FIELDS:
                counts: Counter[str] = Counter(first[name])
                counts.update(entry[name])
                first[name] = dict(counts)
            first["places"].append(place)
    for entry in merged:
        entry["seconds"] = round(entry["seconds"], 6)
    return merged
