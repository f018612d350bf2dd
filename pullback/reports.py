"""The results of gradient checks, and the events of a stream of them."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pullback.documents import read
from pullback.errors import problem
from pullback.findings import SHOWN, Check, Coverage, Worst
from pullback.html.findings import findings, verdict
from pullback.html.tree import STYLE, element, markup
from pullback.wording import counted

DIGITS = 12
"""How many digits of a digest are shown."""


@dataclass(frozen=True, repr=False)
class Report:
    """The report on one op; ``document`` is the JSON that the service sent.

    The verdict ``error`` stands for a fault of the checker. ``unfinished`` checks were not run: the time was over.
    ``origin`` has the ``version`` of Pullback, that of ``tensorflow``, and the digests of the op's ``page`` and of what
    belongs to it. The first of the ``devices`` was checked, and the others compared with it. A service before 0.4.0
    sends none of the three.
    """

    op: str
    verdict: str
    sentence: str
    seed: int
    points: int
    evaluations: int
    seconds: float
    checks: list[Check]
    document: Mapping[str, Any] = field(repr=False)
    unfinished: int = 0
    coverage: list[Coverage] = field(default_factory=list[Coverage])
    origin: Mapping[str, str] = field(default_factory=dict[str, str])
    modes: list[str] = field(default_factory=list[str])
    devices: list[str] = field(default_factory=list[str])

    @property
    def page(self) -> str:
        """The first digits of the digest of the op's page: ``page 9f86d0818841``, "" if it is unknown."""
        return f"page {digest[:DIGITS]}" if (digest := self.origin.get("page")) else ""

    @property
    def setting(self) -> str:
        """What the op was checked with: ``Pullback 0.4.0, TensorFlow 2.21.0, modes graph, eager, cpu, seed 0``."""
        names = {"version": "Pullback", "tensorflow": "TensorFlow"}
        versions = [f"{name} {self.origin[key]}" for key, name in names.items() if key in self.origin]
        modes = [f"{'modes' if self.modes[1:] else 'mode'} {', '.join(self.modes)}"] if self.modes else []
        return ", ".join([*versions, *modes, *self.devices, f"seed {self.seed}"])

    @property
    def provenance(self) -> str:
        """The page and the setting, in a line."""
        return ", ".join(part for part in (self.page, self.setting) if part)

    def __repr__(self) -> str:
        told = [repr(check) for check in self.checks if check.verdict in SHOWN or check.note]
        return "\n  ".join([f"Report({self.verdict}: {self.sentence})", *told])

    def _repr_html_(self) -> str:
        return markup(element("div", element("style", STYLE), *section(self), class_="pullback"))

    def count(self, verdict: str) -> int:
        """Return the number of checks with this verdict."""
        return sum(check.verdict == verdict for check in self.checks)


def section(report: Report, *, anchor: str | None = None) -> list[ET.Element]:
    """Return the report as elements of a page; ``anchor`` is the id that links lead to."""
    facts = f"{counted(report.points, 'number')}, {counted(report.evaluations, 'evaluation')}, {report.seconds:.2f} s"
    parts = [
        element("h2", verdict(report.verdict), f" {report.op}", id=anchor),
        element("p", report.sentence),
        element("p", facts, class_="dim"),
        element("p", report.provenance, class_="dim"),
    ]
    if scope := report.document.get("scope"):
        parts.append(element("p", str(scope), class_="dim"))
    return [*parts, *findings(report.checks)]


@dataclass(frozen=True)
class Start:
    """The start of a stream: the ops to check, the reasons why others are not, and the number of steps."""

    ops: list[str]
    unavailable: dict[str, str]
    steps: int


@dataclass(frozen=True)
class Progress:
    """The start of a step, which is a check of an op, after ``done`` of ``steps`` steps.

    All that is left takes about ``left_s`` seconds, if that is known.
    """

    op: str
    check: str
    done: int
    steps: int
    left_s: float | None = None


@dataclass(frozen=True)
class Summary:
    """The regular end of a stream: the verdict on all ops, and the number of ops with each verdict.

    ``errors`` counts the ops where the checker failed, ``unfinished`` those with checks that were not run.
    """

    verdict: str
    passed: int
    failed: int
    inconclusive: int
    seconds: float
    document: Mapping[str, Any] = field(repr=False)
    errors: int = 0
    unfinished: int = 0


Event: TypeAlias = Start | Progress | Report | Summary


@dataclass(frozen=True)
class Block:
    """Rows of the leading axis, from ``start`` up to but not including ``stop``."""

    start: int
    stop: int
    verdict: str
    wrong: int
    ulps: float


@dataclass(frozen=True)
class GradientVerdict:
    """The verdict on your gradient of one input; in ``worst``, yours is ``analytic`` and the op's ``numeric``."""

    verdict: str
    sentence: str
    elements: int
    wrong: int
    worst: Worst | None
    blocks: list[Block]


@dataclass(frozen=True, repr=False)
class Verification:
    """The verdict on your gradients, in ``dtype``, compared with the op's own in the dtype ``against``."""

    op: str
    verdict: str
    sentence: str
    dtype: str
    against: str
    gradients: dict[str, GradientVerdict]
    document: Mapping[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        return f"Verification({self.op}, {self.dtype} against {self.against}: {self.verdict}: {self.sentence})"


def report(document: Mapping[str, Any]) -> Report:
    """Read the report on one op."""
    checks = [
        {
            "compared": entry["points"] - sum(entry["inconclusive"].values()),
            **entry,
            "places": entry.get("places") or [entry],
        }
        for entry in document["checks"]
    ]
    return read(Report, {**document, "checks": checks, "document": document})


def event(line: str | bytes) -> Event | None:
    """Read one line of a stream; return ``None`` for an event of unknown kind.

    Raises the ``ProblemError`` of an error event, which ends the stream early.
    """
    document = json.loads(line)
    match document["event"]:
        case "start":
            unavailable = {op["op"]: op["reason"] for op in document["unavailable"]}
            return Start(document["ops"], unavailable, document["steps"])
        case "progress":
            return read(Progress, document)
        case "report":
            return report(document["report"])
        case "summary":
            counts = {"passed": document["pass"], "failed": document["fail"], "errors": document.get("error", 0)}
            return read(Summary, {**document, **counts, "document": document})
        case "error":
            raise problem(document["problem"])
        case _:
            return None


def verification(document: Mapping[str, Any]) -> Verification:
    """Read the result of ``verify``."""
    gradients = {name: {**entry, "worst": _worst(entry["worst"])} for name, entry in document["gradients"].items()}
    return read(Verification, {**document, "gradients": gradients, "document": document})


def _worst(entry: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if entry is None else {**entry, "analytic": entry["yours"], "numeric": entry["expected"]}
