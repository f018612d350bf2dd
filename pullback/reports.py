"""What the gradient checks find, and the events of a stream of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pullback.errors import problem


@dataclass(frozen=True)
class Worst:
    """The number of a gradient that is farthest off, beside what it should be.

    ``error_bar`` is by how much they may differ, ``x`` the input there; ``index`` is missing along a random direction.
    """

    index: tuple[int, ...] | None
    x: float | None
    analytic: float
    numeric: float
    error_bar: float
    absolute: float
    relative: float
    ulps: float


@dataclass(frozen=True)
class Check:
    """What one check found of one thing; ``inconclusive`` counts the numbers that told nothing, by reason."""

    check: str
    verdict: str
    sentence: str
    order: int | None
    output: str | None
    input: str | None
    attrs: Mapping[str, Any]
    mode: str
    dtype: str
    device: str
    points: int
    evaluations: int
    seconds: float
    inconclusive: Mapping[str, int]
    worst: Worst | None


@dataclass(frozen=True)
class Report:
    """The report on one op; ``document`` is what the service sent."""

    op: str
    verdict: str
    sentence: str
    seed: int
    points: int
    evaluations: int
    seconds: float
    checks: list[Check]
    document: Mapping[str, Any] = field(repr=False)

    def count(self, verdict: str) -> int:
        """Return how many checks have this verdict."""
        return sum(check.verdict == verdict for check in self.checks)


@dataclass(frozen=True)
class Start:
    """A stream begins: the ops that will be checked, why others are not, and how many steps there are."""

    ops: list[str]
    unavailable: dict[str, str]
    steps: int


@dataclass(frozen=True)
class Progress:
    """A step begins: a check of an op, when ``done`` of all ``steps`` are done."""

    op: str
    check: str
    done: int
    steps: int


@dataclass(frozen=True)
class Summary:
    """A stream ends well: the verdict on all ops, and how many have which."""

    verdict: str
    passed: int
    failed: int
    inconclusive: int
    seconds: float
    document: Mapping[str, Any] = field(repr=False)


Event: TypeAlias = Start | Progress | Report | Summary


@dataclass(frozen=True)
class Block:
    """Rows of the leading axis, from ``start`` to before ``stop``."""

    start: int
    stop: int
    verdict: str
    wrong: int
    ulps: float


@dataclass(frozen=True)
class Verified:
    """The verdict on your gradient of one input; in ``worst``, yours is ``analytic`` and the op's is ``numeric``."""

    verdict: str
    sentence: str
    elements: int
    wrong: int
    worst: Worst | None
    blocks: list[Block]


@dataclass(frozen=True)
class Verification:
    """The verdict on your gradients, computed in ``dtype``, beside the op's own in the dtype ``against``."""

    op: str
    verdict: str
    sentence: str
    dtype: str
    against: str
    gradients: dict[str, Verified]
    document: Mapping[str, Any] = field(repr=False)


def report(document: Mapping[str, Any]) -> Report:
    """Read the report on one op."""
    kept = {key: document[key] for key in ("op", "verdict", "sentence", "seed", "points", "evaluations", "seconds")}
    return Report(**kept, checks=[_check(entry) for entry in document["checks"]], document=document)


def event(line: str | bytes) -> Event | None:
    """Read one line of a stream; one of a kind not known here is nothing.

    Raises the ``ProblemError`` of an event that says that the stream ends early.
    """
    document = json.loads(line)
    match document["event"]:
        case "start":
            unavailable = {op["op"]: op["reason"] for op in document["unavailable"]}
            return Start(document["ops"], unavailable, document["steps"])
        case "progress":
            return Progress(document["op"], document["check"], document["done"], document["steps"])
        case "report":
            return report(document["report"])
        case "summary":
            counts = (document["pass"], document["fail"], document["inconclusive"])
            return Summary(document["verdict"], *counts, seconds=document["seconds"], document=document)
        case "error":
            raise problem(document["problem"])
        case _:
            return None


def verification(document: Mapping[str, Any]) -> Verification:
    """Read an answer of ``verify``."""
    kept = {key: document[key] for key in ("op", "verdict", "sentence", "dtype", "against")}
    found = {name: _verified(entry) for name, entry in document["gradients"].items()}
    return Verification(**kept, gradients=found, document=document)


def _check(entry: Mapping[str, Any]) -> Check:
    fields = ("check", "verdict", "sentence", "order", "output", "input", "attrs", "mode", "dtype", "device")
    counts = ("points", "evaluations", "seconds", "inconclusive")
    kept = {key: entry[key] for key in (*fields, *counts)}
    return Check(**kept, worst=_worst(entry["worst"], "analytic", "numeric"))


def _verified(entry: Mapping[str, Any]) -> Verified:
    kept = {key: entry[key] for key in ("verdict", "sentence", "elements", "wrong")}
    worst = _worst(entry["worst"], "yours", "expected")
    return Verified(**kept, worst=worst, blocks=[_block(block) for block in entry["blocks"]])


def _block(block: Mapping[str, Any]) -> Block:
    return Block(block["start"], block["stop"], block["verdict"], block["wrong"], float(block["ulps"]))


def _worst(entry: Mapping[str, Any] | None, analytic: str, numeric: str) -> Worst | None:
    """Read an element; its numbers may be the words NaN, Infinity and -Infinity, which ``float`` reads as well."""
    if entry is None:
        return None
    index, x = entry["index"], entry["x"]
    numbers = (float(entry[key]) for key in (analytic, numeric, "error_bar", "absolute", "relative", "ulps"))
    return Worst(None if index is None else tuple(index), None if x is None else float(x), *numbers)
