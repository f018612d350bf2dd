"""What the tool check says of a report: the verdict, and the worst findings."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from app.errors import clip
from app.routes.mcp.summaries import fitting
from app.routes.native.nonfinite import spell_nonfinite

# What was checked, with what, and how much.
SETTING = ("origin", "modes", "devices", "seed", "points", "evaluations", "seconds")
# The findings that are shown, the worst first; those that pass are only counted.
ORDER = ("fail", "error", "inconclusive")
# How many findings are shown, and how much of a sentence, until the document is short enough.
SHOWN = ((10, 600), (5, 400), (3, 200), (1, 100))


def verdict_document(report: Mapping[str, Any], rest: Mapping[str, Any]) -> bytes:
    """Return the document with the verdict of a report; ``rest`` says how to get all of it."""
    entries: list[Mapping[str, Any]] = [*report["checks"]]
    bad = [entry for kind in ORDER for entry in entries if entry["verdict"] == kind]
    notes = [entry for entry in entries if entry["note"] and entry["verdict"] not in ORDER]

    def document(level: tuple[int, int]) -> dict[str, Any]:
        most, length = level
        shown = [_finding(entry, length) for entry in (*bad, *notes)[:most]]
        return spell_nonfinite(
            {
                "op": report["op"],
                "verdict": report["verdict"],
                "sentence": clip(report["sentence"], 600),
                "counts": Counter(entry["verdict"] for entry in entries),
                "unfinished": report["unfinished"],
                "findings": shown,
                "left_off": len(bad) + len(notes) - len(shown),
                **{name: report[name] for name in SETTING},
                "whole": rest,
            }
        )

    return fitting(SHOWN, document)


def _finding(entry: Mapping[str, Any], length: int) -> dict[str, Any]:
    names = ("check", "verdict", "order", "output", "input", "mode", "dtype")
    finding = {name: entry[name] for name in names if entry.get(name) is not None}
    finding["sentence"] = clip(entry["sentence"], length)
    # A part of a command would be another one.
    command = entry["reproduce"]
    return finding | ({"reproduce": command} if command and len(command) <= length else {})
