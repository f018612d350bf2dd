"""One entry for each cause: findings with the same check, verdict and sentence are one entry with several places."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from app.tensors.dtypes import DTYPES
from ops import MODES

Document: TypeAlias = dict[str, Any]

PLACE = ("attrs", "mode", "dtype", "device", "order", "output", "input")
SUMS = ("points", "evaluations", "seconds")
_PLACE_WORDS = re.compile(rf"\b(?:{'|'.join(DTYPES)})\b|\bmode (?:{'|'.join(MODES)})\b")


def merge(entries: Iterable[Document]) -> list[Document]:
    """Return the entries with their ``places``; those of one cause are merged into the first.

    Sentences may differ in the names of dtypes and modes. What is counted adds up; all else is that of the first.
    Entries that pass stay apart.
    """
    merged: list[Document] = []
    by_cause: dict[tuple[str, ...], Document] = {}
    for entry in entries:
        cause = (entry["check"], entry["verdict"], _PLACE_WORDS.sub("…", entry["sentence"]))
        first = by_cause.get(cause)
        if entry["verdict"] == "pass" or first is None:
            by_cause[cause] = first = {**entry, "places": [_place(entry)]}
            merged.append(first)
        else:
            first |= {name: first[name] + entry[name] for name in SUMS}
            first["inconclusive"] = _sum(first["inconclusive"], entry["inconclusive"])
            first["places"].append(_place(entry))
    for entry in merged:
        entry["seconds"] = round(entry["seconds"], 6)
    return merged


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {reason: one.get(reason, 0) + other.get(reason, 0) for reason in {**one, **other}}


def _place(entry: Mapping[str, Any]) -> Document:
    return {name: entry[name] for name in PLACE}
