"""Verdicts: what a check found, number by number, and how a person is told."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from app.gradcheck.numeric import Trouble
from app.gradcheck.rounding import ulps
from ops import Array, Mode

Verdict = Literal["pass", "fail", "inconclusive", "skipped"]
Index: TypeAlias = tuple[int, ...]

ALIKE = 1e-2
"""How far the ratios of wrong to right may be apart, as a part of what they are off by, to be called one."""


@dataclass(frozen=True)
class Element:
    """One number of a gradient beside what it should be, and by how much they may differ (``error_bar``)."""

    index: Index | None
    x: float | None
    analytic: float
    numeric: float
    error_bar: float
    dtype: str

    @property
    def absolute(self) -> float:
        """How far they are apart; NaN and infinities of one kind are not apart at all."""
        same = self.analytic == self.numeric or (np.isnan(self.analytic) and np.isnan(self.numeric))
        return 0.0 if same else abs(self.analytic - self.numeric)

    @property
    def relative(self) -> float:
        """The same, as a part of what it should be."""
        if not self.absolute:
            return 0.0
        return self.absolute / abs(self.numeric) if self.numeric else float("inf")

    @property
    def ulps(self) -> float:
        """The same, in units in the last place of what it should be."""
        return ulps(self.absolute, self.numeric, self.dtype)

    def document(self) -> dict[str, Any]:
        """Return the element as it stands in a report."""
        return {
            "index": None if self.index is None else list(self.index),
            "x": self.x,
            "analytic": self.analytic,
            "numeric": self.numeric,
            "error_bar": self.error_bar,
            "absolute": self.absolute,
            "relative": self.relative,
            "ulps": self.ulps,
        }


@dataclass(frozen=True)
class Place:
    """What a finding is about: the check, the order (0: values), the slot, and how the op was run."""

    check: str
    order: int | None = None
    output: str | None = None
    input: str | None = None
    mode: Mode = "graph"
    dtype: str = ""


@dataclass(frozen=True)
class Finding:
    """What one check found of one thing: its verdict, a sentence, and the worst element."""

    place: Place
    verdict: Verdict
    sentence: str
    points: int = 0
    evaluations: int = 0
    inconclusive: Mapping[str, int] = field(default_factory=dict[str, int])
    worst: Element | None = None

    def document(self) -> dict[str, Any]:
        """Return the finding as it stands in a report."""
        return {
            **asdict(self.place),
            "verdict": self.verdict,
            "sentence": self.sentence,
            "points": self.points,
            "evaluations": self.evaluations,
            "inconclusive": dict(self.inconclusive),
            "worst": None if self.worst is None else self.worst.document(),
        }


class Comparison:
    """Compares numbers with what they should be, keeps the worst and counts what tells nothing."""

    def __init__(self, place: Place) -> None:
        """Take what the numbers are about; their dtype tells the units in the last place."""
        self.place = place
        self.points = self.wrong = self.evaluations = 0
        self.inconclusive: Counter[str] = Counter()
        self.worst: Element | None = None
        self._ratios: list[Array] = []
        self._badness = -1.0

    def add(
        self,
        analytic: Array,
        numeric: Array,
        allowed: Array,
        *,
        trouble: Array | None = None,
        settled: Array | bool = True,
        x: Array | None = None,
        index: Callable[[int], Index | None] | None = None,
        of_input: str | None = None,
        of_output: str | None = None,
    ) -> None:
        """Compare arrays of one shape, number by number.

        ``trouble`` says where there is nothing to compare with; where it is not ``settled`` that the bar is narrow
        enough, numbers that agree prove nothing. ``index(i)`` names the place of the i-th number;
        ``of_input`` or ``of_output`` whose they are, where the comparison's place does not.
        """
        a, n, bar, sure = (np.ravel(v) for v in np.broadcast_arrays(_wide(analytic), _wide(numeric), allowed, settled))
        if not a.size:
            return
        same, off = _distance(a, n)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            right = off <= bar
            badness = np.where(same, 0.0, off / np.fmax(bar, np.finfo(np.float64).tiny))
            ratio = a / n
        reasons = np.where(right & ~same & ~sure, Trouble.NO_DIGITS, Trouble.NONE).astype(object)
        if trouble is not None:
            reasons = np.where(np.ravel(trouble) != Trouble.NONE, np.ravel(trouble), reasons)
        known = reasons == Trouble.NONE
        self.points += a.size
        self.wrong += int((known & ~right).sum())
        self.inconclusive.update(str(reason) for reason in reasons[~known])
        self._ratios.append(ratio[known & ~right])
        badness = np.where(known, badness, -0.5)
        at = int(np.argmax(badness))
        if badness[at] > self._badness:
            self._badness = float(badness[at])
            place = _unravelled(at, np.shape(analytic)) if index is None else index(at)
            value = None if x is None else float(np.ravel(x)[at])
            self.worst = Element(place, value, float(a[at]), float(n[at]), float(bar[at]), self.place.dtype)
            if of_input or of_output:
                self.place = replace(self.place, input=of_input, output=of_output)

    @property
    def verdict(self) -> Verdict:
        """The verdict on all of it: one wrong number is enough to fail, one that is known to pass."""
        if self.wrong:
            return "fail"
        if not self.points:
            return "skipped"
        return "inconclusive" if self.inconclusive.total() == self.points else "pass"

    def finding(self, what: str, against: str) -> Finding:
        """Return the finding: ``what`` was compared ``against`` something."""
        match self.verdict:
            case "fail":
                told = self._failure(what, against)
            case "pass":
                told = self._success(what, against)
            case "inconclusive":
                told = f"{what} cannot be told from {against}: {self._reasons}"
            case "skipped":
                told = f"{what}: there is nothing to compare"
        worst = self.worst if self.verdict in ("pass", "fail") else None
        return Finding(self.place, self.verdict, told, self.points, self.evaluations, dict(self.inconclusive), worst)

    def _success(self, what: str, against: str) -> str:
        told = f"{what} agrees with {against} at {_count(self.points - self.inconclusive.total(), 'point')}"
        return told + (f"; {self._reasons} tell nothing" if self.inconclusive else "")

    @property
    def _reasons(self) -> str:
        return ", ".join(f"{count} ({reason})" for reason, count in self.inconclusive.items())

    def _failure(self, what: str, against: str) -> str:
        worst = self.worst
        assert worst is not None
        place = "" if worst.index is None else f"[{', '.join(map(str, worst.index))}]"
        at = "" if worst.x is None else f" at x = {worst.x:.6g}"
        was, should = _told_apart(worst.analytic, worst.numeric)
        told = f"{what}{place}{at} is {was}, but {against} is {should} ± {worst.error_bar:.2g}"
        return f"{told}; {self.wrong} of {_count(self.points, 'point')} wrong{self._pattern}"

    @property
    def _pattern(self) -> str:
        """What all the wrong numbers have in common, for that is often the fault."""
        ratios = np.concatenate(self._ratios)
        if len(ratios) == 1 or not np.isfinite(ratios).all():
            return ""
        middle = float(np.median(ratios))
        if np.abs(ratios - middle).max() > ALIKE * abs(middle - 1):
            return ""
        known = {-1.0: ": the sign is flipped", 0.0: ": all are 0"}
        return known.get(round(middle, 6), f": all are {_apart_from_one(middle)} times what they should be")


def worst_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on many: a failure fails, nothing but passes (and what is skipped) passes."""
    for verdict in ("fail", "pass", "inconclusive"):
        if verdict in verdicts:
            return verdict
    return "inconclusive"


def _wide(values: Array) -> Array:
    return np.asarray(values, np.float64)


def _distance(a: Array, n: Array) -> tuple[Array, Array]:
    """Return where numbers are the same, NaN and infinities too, and how far apart they are: ∞ if one is NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        same = (a == n) | (np.isnan(a) & np.isnan(n))
        off = np.where(same, 0.0, np.abs(a - n))
    return same, np.where(np.isnan(off), np.inf, off)


def _unravelled(at: int, shape: tuple[int, ...]) -> Index:
    return tuple(int(i) for i in np.unravel_index(at, shape))


def _told_apart(one: float, other: float) -> tuple[str, str]:
    """Return two numbers with as many digits as it takes to see that they differ."""
    texts = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in (6, 9, 12, 17))
    return next((pair for pair in texts if pair[0] != pair[1]), (repr(one), repr(other)))


def _apart_from_one(ratio: float) -> str:
    """Return a ratio with as many digits as it takes to see that it is not 1."""
    digits = 4 + max(0, -math.floor(math.log10(abs(ratio - 1)))) if ratio != 1 else 4
    return f"{ratio:.{digits}g}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
