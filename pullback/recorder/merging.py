"""One report on a model from the checks at its recorded inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.documents import read, written
from pullback.findings import Check, outcome
from pullback.gradcheck.verdict import Finding, Subject, Verdict, worst_verdict
from pullback.wording import counted

Document = dict[str, Any]
SUMS = ("points", "compared", "evaluations", "seconds")
COUNTS = ("inconclusive", "digits")


@dataclass(frozen=True)
class Checked:
    """The document of the checks at one input, that of the ``number``-th request to the model."""

    number: int
    document: Document


@dataclass(eq=False)
class Recorded:
    """What was found of one model. ``early`` are the inputs that were checked while requests came."""

    target: str
    checked: list[Checked] = field(default_factory=list[Checked])
    faults: list[str] = field(default_factory=list[str])
    """Why checks broke off."""
    unreadable: list[str] = field(default_factory=list[str])
    unusable: str = ""
    early: int = 0

    def document(self, seen: int, seed: int, notes: Mapping[str, int]) -> Document:
        """Return the report, with the worst of all inputs in each entry."""
        entries = [_merged(group, seen, len(self.checked)) for group in self._groups().values()]
        fault = Subject("contract", mode=entries[0]["mode"] if entries else "", dtype="")
        entries += [
            written(Finding(fault, "error", f"the check broke off: {reason}").entry({})) for reason in self.faults
        ]
        documents = [each.document for each in self.checked]
        verdict = worst_verdict([entry["verdict"] for entry in entries])
        evaluations = sum(each["evaluations"] for each in documents)
        return {
            "op": self.target,
            "verdict": verdict,
            "sentence": outcome(self.target, [read(Check, entry) for entry in entries], ""),
            "scope": self._scope(seen, evaluations),
            **_common(documents),
            "seed": seed,
            "points": sum(entry["points"] for entry in entries),
            "evaluations": evaluations,
            "seconds": round(sum(each["seconds"] for each in documents), 6),
            "unfinished": sum(bool(each["unfinished"]) for each in documents),
            "coverage": [
                {name: entry[name] for name in ("check", "order", "dtype", "points", "compared", "digits")}
                for entry in entries
                if entry["points"] and entry["verdict"] != "skipped"
            ],
            "checks": entries,
            "recorded": {
                "requests": seen,
                "inputs": len(self.checked),
                "early": self.early,
                "unreadable": len(self.unreadable),
                **notes,
            },
        }

    def _groups(self) -> dict[tuple[Any, ...], list[tuple[int, Document]]]:
        found: dict[tuple[Any, ...], list[tuple[int, Document]]] = {}
        for each in self.checked:
            for entry in each.document["checks"]:
                key = tuple(entry[name] for name in ("check", "order", "output", "input", "dtype"))
                found.setdefault(key, []).append((each.number, entry))
        return found

    def _scope(self, seen: int, evaluations: int) -> str:
        early = f", {self.early} of them while requests came" if self.early else ""
        what = f"{counted(len(self.checked), 'input')} of {counted(seen, 'request')}, drawn at random{early}"
        lacks = f" {counted(len(self.unreadable), 'input')} left out: {self.unreadable[0]}." if self.unreadable else ""
        shown = self.checked[-1].document["scope"].partition(". ")[2] if self.checked else ""
        return f"{what}; {counted(evaluations, 'evaluation')}.{lacks} {shown}".rstrip()


def _common(documents: Sequence[Document]) -> Document:
    """Return what computed the numbers, where it is the same at all inputs."""
    first = documents[0] if documents else {}
    return {
        name: first[name]
        for name in ("origin", "modes", "devices")
        if name in first and all(each.get(name) == first[name] for each in documents)
    }


def _merged(group: Sequence[tuple[int, Document]], seen: int, inputs: int) -> Document:
    """Return one entry for those of a check at all inputs: the worst one, with the counts of all."""
    verdict = worst_verdict([entry["verdict"] for _, entry in group])
    alike = [(number, entry) for number, entry in group if entry["verdict"] == verdict] or list(group)
    number, worst = max(alike, key=lambda each: _size(each[1]))
    return {
        **worst,
        "sentence": worst["sentence"] + _where(verdict, number, len(alike), seen, inputs),
        **{name: round(sum(entry[name] for _, entry in group), 6) for name in SUMS},
        **{name: _total([entry[name] for _, entry in group]) for name in COUNTS},
    }


def _size(entry: Document) -> float:
    worst = entry["worst"]
    size = float(worst["relative"]) if worst else 0.0
    return size if size == size else float("inf")  # noqa: PLR0124 - NaN is worst of all


def _where(verdict: Verdict, number: int, count: int, seen: int, inputs: int) -> str:
    at = f"the input of request {number} of {seen}"
    if verdict in ("pass", "skipped"):
        return f", worst at {at}" if verdict == "pass" and inputs > 1 else ""
    return f"; this is {at}, and {count} of {counted(inputs, 'recorded input')} show it"


def _total(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = found.get(name, 0) + count
    return found
