"""Verdicts: what a check found, number by number, and how a person is told."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from app.gradcheck.numeric import Trouble
from app.gradcheck.rounding import ulps
from ops import Array

Verdict = Literal["pass", "fail", "inconclusive", "skipped"]
Index: TypeAlias = tuple[int, ...]

NO_DIGITS = 0.01
"""The part of a number that its error bar may be, if a comparison is to prove anything."""


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
class Finding:
    """What one check found of one thing: its verdict, a sentence, and the worst element."""

    check: str
    verdict: Verdict
    sentence: str
    order: int | None = None
    output: str | None = None
    input: str | None = None
    mode: str = ""
    dtype: str = ""
    points: int = 0
    evaluations: int = 0
    inconclusive: Mapping[str, int] = field(default_factory=dict[str, int])
    worst: Element | None = None

    def document(self) -> dict[str, Any]:
        """Return the finding as it stands in a report."""
        return {
            "check": self.check,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "order": self.order,
            "output": self.output,
            "input": self.input,
            "mode": self.mode,
            "dtype": self.dtype,
            "points": self.points,
            "evaluations": self.evaluations,
            "inconclusive": dict(self.inconclusive),
            "worst": None if self.worst is None else self.worst.document(),
        }


class Tally:
    """Compares numbers with what they should be, keeps the worst and counts what tells nothing."""

    def __init__(self, dtype: str) -> None:
        """Take the dtype of the numbers that are checked."""
        self.dtype = dtype
        self.points = self.wrong = self.evaluations = 0
        self.inconclusive: Counter[str] = Counter()
        self.worst: Element | None = None
        self.place: dict[str, Any] = {}
        self.ratios: list[Array] = []
        self._badness = -1.0

    def add(
        self,
        analytic: Array,
        numeric: Array,
        allowed: Array,
        *,
        trouble: Array | None = None,
        settled: Array | None = None,
        x: Array | None = None,
        index: Any = None,
        **place: Any,
    ) -> None:
        """Compare arrays of one shape, number by number.

        ``trouble`` says where there is nothing to compare with. A bar wider than ``NO_DIGITS`` of both numbers proves
        nothing, unless ``settled`` says that it does. ``index(i)`` names the i-th number; ``place`` what all are.
        """
        a, n, bar = (np.ravel(np.asarray(v, np.float64)) for v in np.broadcast_arrays(analytic, numeric, allowed))
        if not a.size:
            return
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            same = (a == n) | (np.isnan(a) & np.isnan(n))
            off = np.where(same, 0.0, np.abs(a - n))
            off = np.where(np.isnan(off), np.inf, off)
            right = off <= bar
            vague = right & ~same & (bar > NO_DIGITS * np.fmax(np.abs(a), np.abs(n)))
            badness = np.where(same, 0.0, off / np.fmax(bar, np.finfo(np.float64).tiny))
        unsettled = vague if settled is None else vague & ~np.ravel(settled)
        reasons = np.where(unsettled, Trouble.NO_DIGITS, Trouble.NONE).astype(object)
        if trouble is not None:
            reasons = np.where(np.ravel(trouble) != Trouble.NONE, np.ravel(trouble), reasons)
        known = reasons == Trouble.NONE
        self.points += a.size
        self.wrong += int((known & ~right).sum())
        self.inconclusive.update(str(reason) for reason in reasons[~known])
        with np.errstate(invalid="ignore", divide="ignore"):
            self.ratios.append((a / n)[known & ~right])
        badness = np.where(known, badness, -0.5)
        if (at := int(np.argmax(badness))) is not None and badness[at] > self._badness:
            self._badness, self.place = float(badness[at]), place
            where = index(at) if index else tuple(int(i) for i in np.unravel_index(at, np.shape(analytic)))
            value = None if x is None else float(np.ravel(x)[at])
            self.worst = Element(where, value, float(a[at]), float(n[at]), float(bar[at]), self.dtype)

    @property
    def verdict(self) -> Verdict:
        """The verdict on all of it: one wrong number is enough to fail, one that is known to pass."""
        if self.wrong:
            return "fail"
        if not self.points:
            return "skipped"
        return "inconclusive" if self.inconclusive.total() == self.points else "pass"

    def finding(self, check: str, what: str, against: str, **about: Any) -> Finding:
        """Return the finding: ``what`` was compared ``against`` something."""
        sentence = {
            "fail": self._failure,
            "pass": self._success,
            "inconclusive": self._riddle,
            "skipped": lambda what, against: f"{what}: there is nothing to compare",
        }[self.verdict](what, against)
        keys = {"dtype": self.dtype, "points": self.points, "evaluations": self.evaluations, **self.place, **about}
        return Finding(
            check, self.verdict, sentence, inconclusive=dict(self.inconclusive), worst=self._shown, **keys
        )

    @property
    def _shown(self) -> Element | None:
        return self.worst if self.verdict in ("pass", "fail") else None

    def _success(self, what: str, against: str) -> str:
        told = f"{what} agrees with {against} at {_count(self.points - self.inconclusive.total(), 'point')}"
        return told + (f"; {self._reasons} tell nothing" if self.inconclusive else "")

    def _riddle(self, what: str, against: str) -> str:
        return f"{what} cannot be told from {against}: {self._reasons}"

    @property
    def _reasons(self) -> str:
        return ", ".join(f"{count} ({reason})" for reason, count in self.inconclusive.items())

    def _failure(self, what: str, against: str) -> str:
        worst = self.worst
        assert worst is not None
        place = "" if worst.index is None else f"[{', '.join(map(str, worst.index))}]"
        at = "" if worst.x is None else f" at x = {worst.x:.6g}"
        told = f"{what}{place}{at} is {worst.analytic:.9g}, but {against} is {worst.numeric:.9g} ± {worst.error_bar:.2g}"
        return f"{told}; {self.wrong} of {_count(self.points, 'point')} wrong{self._pattern}"

    @property
    def _pattern(self) -> str:
        """What all the wrong numbers have in common, for that is often the fault."""
        ratios = np.concatenate(self.ratios)
        few = 2
        if len(ratios) < few or not np.isfinite(ratios).all():
            return ""
        middle = float(np.median(ratios))
        if np.abs(ratios - middle).max() > 1e-3 * abs(middle):
            return ""
        known = {-1.0: ": the sign is flipped", 0.0: ": all are 0"}
        return known.get(round(middle, 6), f": all are {middle:.4g} times what they should be")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def worst_verdict(verdicts: list[Verdict]) -> Verdict:
    """Return the verdict on many: a failure fails, nothing but passes (and what is skipped) passes."""
    for verdict in ("fail", "pass", "inconclusive"):
        if verdict in verdicts:
            return verdict
    return "inconclusive"
