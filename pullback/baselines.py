"""Baselines: what ops computed when they were saved, and what has moved since, in units of their error bars."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from pullback.dtypes import Array
from pullback.findings import Check
from pullback.gradcheck import floats
from pullback.reports import Report

FORMAT = "pullback baseline 1"
WORST_FIRST = ("fail", "error", "inconclusive", "pass", "skipped")
Document = Mapping[str, Any]
NOTHING: Document = {"digest": "", "versions": {}, "arrays": []}


@dataclass(frozen=True)
class Move:
    """Numbers of one value or derivative that are not those of the baseline; the numbers are those that moved farthest.

    ``bars`` is the distance in units of the error bar, the larger of the two, and ``ulps`` in units in the last place.
    """

    order: int
    slot: str
    dtype: str
    attrs: Mapping[str, Any]
    index: tuple[int, ...]
    before: float
    now: float
    ulps: float
    bars: float
    moved: int
    numbers: int

    @property
    def is_beyond(self) -> bool:
        """Whether rounding does not explain it."""
        return self.bars > 1

    @property
    def what(self) -> str:
        """The value: ``y``, ``dx``, or ``hvp of x``."""
        return {0: self.slot, 1: f"d{self.slot}"}.get(self.order, f"hvp of {self.slot}")

    @property
    def sentence(self) -> str:
        """What has moved, and how far."""
        attrs = "".join(f", {name}={value}" for name, value in self.attrs.items())
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        far = f"by up to {self.ulps:.3g} ULP, {self.bars:.2g} error bars"
        return (
            f"{self.what}, {self.dtype}{attrs}: {self.moved} of {self.numbers} numbers moved {far}: {self.what}{at} "
            f"from {self.before:.17g} to {self.now:.17g}"
        )


@dataclass(frozen=True)
class Difference:
    """What differs in an op: numbers, verdicts, its page, versions; and what could not be compared."""

    op: str
    moves: Sequence[Move] = ()
    verdicts: Sequence[str] = ()
    notes: Sequence[str] = ()
    incomparable: str = ""
    compared: int = 0
    is_worse: bool = False
    """Whether a check has a worse verdict than before."""

    @property
    def is_beyond(self) -> bool:
        """Whether something is not as before that rounding does not explain."""
        return self.is_worse or any(move.is_beyond for move in self.moves)

    def document(self) -> dict[str, Any]:
        """Return the difference as JSON."""
        moves = [{**vars(move), "index": list(move.index), "sentence": move.sentence} for move in self.moves]
        lists = {"moves": moves, "verdicts": [*self.verdicts], "notes": [*self.notes]}
        return {"op": self.op, "compared": self.compared, **lists, "incomparable": self.incomparable or None}


@dataclass
class _Arrays:
    """The recorded arrays of an op by their place."""

    by_place: dict[str, Document] = field(default_factory=dict[str, Document])

    @classmethod
    def of(cls, entry: Document) -> "_Arrays":
        found = cls()
        for array in entry["arrays"]:
            place = [array[name] for name in ("attrs", "point", "dtype", "order", "slot")]
            found.by_place[json.dumps(place, sort_keys=True)] = array
        return found


def baseline(reports: Sequence[Report]) -> dict[str, Any]:
    """Return what reports with a record say, all with one seed, as JSON."""
    return {
        "format": FORMAT,
        "seed": reports[0].seed if reports else 0,
        "ops": {report.op: _entry(report) for report in reports},
    }


def read(document: Any) -> Document:
    """Return a baseline that JSON has; raise ``ValueError`` for anything else."""
    if not isinstance(document, dict) or cast(Document, document).get("format") != FORMAT:
        raise ValueError(f"expected the JSON that --save writes, with format {FORMAT!r}")
    found = cast(Document, document)
    try:
        for entry in cast("dict[str, Document]", found["ops"]).values():
            for name in ("checks", "versions"):
                _ = {str(key): str(value) for key, value in entry[name].items()}
            _ = str(entry["digest"])
            for array in _Arrays.of(entry).by_place.values():
                _check_array(array)
        _ = int(found["seed"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"expected the JSON that --save writes, got another ({error})") from error
    return found


def _check_array(array: Document) -> None:
    at, shape = np.array(array["at"], np.int64), tuple(int(n) for n in array["shape"])
    if {len(_numbers(array, "values")), len(_numbers(array, "error_bars"))} != {len(at)}:
        raise ValueError("as many values and error bars as indices are needed")
    if len(at) and not (at.min() >= 0 and at.max() < math.prod(shape)):
        raise ValueError("indices are outside of the shape")


def differences(before: Document, reports: Sequence[Report]) -> Iterator[Difference]:
    """Yield what differs from a baseline in each op that is in it."""
    for report in reports:
        if (saved := before["ops"].get(report.op)) is not None:
            yield _difference(report.op, saved, _entry(report))


def _entry(report: Report) -> dict[str, Any]:
    record: Document = report.document.get("record") or NOTHING
    return {"verdict": report.verdict, "checks": _verdicts(report.checks), **record}


def _verdicts(checks: Sequence[Check]) -> dict[str, str]:
    """Return the worst verdict at each place of each check."""
    found = dict[str, str]()
    for check in checks:
        for place in check.places:
            parts = [check.check, f"d{place.output}/d{place.input}" if place.output and place.input else ""]
            parts += ["" if place.order is None else f"order {place.order}", place.dtype, place.mode, place.device]
            parts += [f"{name}={value}" for name, value in place.attrs.items()]
            name = ", ".join(part for part in parts if part)
            found[name] = min(found.get(name, check.verdict), check.verdict, key=WORST_FIRST.index)
    return found


def _difference(op: str, before: Document, now: Document) -> Difference:
    old, new = _Arrays.of(before).by_place, _Arrays.of(now).by_place
    both = [place for place in old if place in new and old[place]["at"] == new[place]["at"]]
    moves = [move for place in both if (move := _move(old[place], new[place])) is not None]
    changed = [
        (name, was, verdict)
        for name, verdict in now["checks"].items()
        if (was := before["checks"].get(name, verdict)) != verdict
    ]
    notes = ["the page has changed"] if before["digest"] != now["digest"] else []
    notes += [
        f"{name} {before['versions'].get(name, 'unknown')} -> {version}"
        for name, version in now["versions"].items()
        if before["versions"].get(name) != version
    ]
    lost = len(old) - len(both)
    why = f"{lost} of {len(old)} arrays are at other points, dtypes or attributes now: save the baseline again"
    return Difference(
        op,
        sorted(moves, key=lambda move: -move.bars),
        [f"{name}: {was} -> {verdict}" for name, was, verdict in changed],
        notes,
        why if lost else "",
        compared=sum(len(old[place]["at"]) for place in both),
        is_worse=any(WORST_FIRST.index(verdict) < WORST_FIRST.index(was) for _, was, verdict in changed),
    )


def _move(before: Document, now: Document) -> Move | None:
    """Return how far the numbers of an array have moved, ``None`` if they are the same."""
    a, b = _numbers(before, "values"), _numbers(now, "values")
    bars = np.fmax(_numbers(before, "error_bars"), _numbers(now, "error_bars"))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return None
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        apart = np.where(same, 0.0, np.nan_to_num(np.abs(b - a), nan=np.inf, posinf=np.inf))
        ratio = np.where(same, 0.0, np.nan_to_num(apart / bars, nan=np.inf, posinf=np.inf))
    worst = int(np.lexsort((apart, ratio))[-1])
    shape, dtype = [int(n) for n in before["shape"]], str(before["dtype"])
    return Move(
        before["order"],
        before["slot"],
        dtype,
        before["attrs"],
        tuple(map(int, np.unravel_index(int(before["at"][worst]), shape))),
        float(a[worst]),
        float(b[worst]),
        floats.ulps(float(apart[worst]), float(a[worst]), dtype) if dtype in floats.FLOATS else float(apart[worst]),
        float(ratio[worst]),
        int((~same).sum()),
        len(a),
    )


def _numbers(array: Document, name: str) -> Array:
    """Return recorded numbers; JSON has NaN and infinities as text."""
    return np.array([float(number) for number in array[name]])
