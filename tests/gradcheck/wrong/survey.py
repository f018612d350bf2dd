"""``python -m tests.gradcheck.wrong.survey [words...]``: check the wrong ops, and print what the checker says of each.

The words select modules, names or descriptions. ``--all-modes`` compares all modes, not graph alone. A line begins with
``found`` or ``MISSED``; under it are the alarms of the checks that were not meant to find the fault.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.gradcheck.checking import report
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong import MODULES


def selected(words: list[str]) -> Iterator[tuple[str, str, Planted]]:
    for module in MODULES:
        kind = module.__name__.rpartition(".")[2]
        for text, planted in module.OPS.items():
            if not words or any(word in (kind, planted.op.name) or word in text for word in words):
                yield kind, text, planted


def lines(kind: str, text: str, planted: Planted, modes: Any) -> Iterator[str]:
    began = time.perf_counter()
    try:
        document = report(planted.op, modes=modes)
    except Exception as error:  # noqa: BLE001 - the survey goes on
        yield f"RAISED {kind} {planted.op.name}: {type(error).__name__}: {error}"
        return
    alarms = [entry for entry in document["checks"] if entry["verdict"] == "fail"]
    meant = [entry for entry in alarms if entry["check"] in planted.checks and planted.words in entry["sentence"]]
    verdict, seconds = "found " if meant else "MISSED", time.perf_counter() - began
    yield f"{verdict} {kind} {planted.op.name}, {text}: {document['verdict']}; {planted.checks}; {seconds:.1f} s"
    for entry in meant[:1]:
        yield f"    {entry['check']}: {entry['sentence']}"
    others = {entry["check"]: entry for entry in reversed(alarms) if entry["check"] not in planted.checks}
    for check, entry in others.items():
        yield f"    also {check} {entry['attrs'] or ''}: {entry['sentence']}"


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--all-modes"]
    modes = None if "--all-modes" in sys.argv else ("graph",)
    for choice in selected(arguments):
        for line in lines(*choice, modes):
            print(line, flush=True)
