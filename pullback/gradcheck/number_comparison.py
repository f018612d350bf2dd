"""Number-by-number comparisons, and the sentences that report them."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pullback.dtypes import FLOATS, Array
from pullback.findings import Worst
from pullback.gradcheck import floats
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.reproduction import Index, Reproducible
from pullback.gradcheck.verdict import Finding, Subject, Verdict, is_enough, worst_of
from pullback.wording import counted

NEAR_OVERFLOW = 1 / 16
"""An infinite number is not compared with one that is larger than this fraction of the range of the dtype."""
MOST = 0.5
"""The sentence says if most of the numbers that have an expected value are not compared."""
ROUNDED = 2.0**-20
"""A number counts as 0 if its error bar is at most this fraction of the terms that it is made of."""
CANCELLED, CANCELLED_BAR = 8.0, 2.0**-8
"""It counts as 0 too if it and the expected number are at most so many roundings of these terms, within a wider bar: a
sum of narrow numbers that cancel, such as the gradient of an attention in the bias of its keys.
"""
SHOWING = 1, "float64"
"""The order and dtype whose differences show small numbers beside large ones; others rarely do, and only say so."""
NAMED = 4
"""How many numbers that can be judged nowhere a sentence names."""
MOST_DIGITS = 15
"""The digits of a number that is exact; no float has more."""
SAME_RATIO = 1e-2
"""How far ratios of wrong to right may differ and still count as equal, as a fraction of their distance from 1."""

_STATUSES = tuple(Status)
_OK, _NO_DIGITS, _UNDERFLOW, _NOT_FINITE = map(
    _STATUSES.index, (Status.OK, Status.NO_DIGITS, Status.UNDERFLOW, Status.NOT_FINITE)
)


@dataclass(frozen=True)
class Tolerances:
    """What widens comparisons on top of rounding: a number, and a fraction of the expected number."""

    absolute: float = 0.0
    relative: float = 0.0


class Comparison:
    """Compares numbers with their expected values, keeps the worst one and counts the inconclusive ones."""

    def __init__(self, subject: Subject, tolerances: Tolerances = Tolerances()) -> None:
        """Take what the numbers belong to; its dtype defines units in the last place."""
        self.subject, self._tolerances = subject, tolerances
        self.points = self.wrong = self.evaluations = 0
        self.inconclusive: Counter[str] = Counter()
        self.digits: Counter[int] = Counter()
        self._judged: dict[tuple[Index, Index], bool] = {}
        self.worst: Worst | None = None
        self._wrong_to_right: list[Array] = []
        self._worst_ratio = -1.0
        self._least = floats.underflow(subject.dtype) if subject.dtype in FLOATS else 0.0
        self._unit = floats.eps(subject.dtype) if subject.dtype in FLOATS else 0.0
        self._high = floats.largest(subject.dtype) if subject.dtype in FLOATS else np.inf
        self._calls: Callable[[int], Reproducible] | None = None
        self._worst_at = 0

    def add(
        self,
        analytic: Array,
        numeric: Array,
        allowed: Array,
        *,
        status: Array | None = None,
        error: Array | None = None,
        scale: Array | None = None,
        indices: Sequence[tuple[Index, Index]] = (),
        are_needed: bool = False,
        x: Array | None = None,
        index: Callable[[int], Index | None] | None = None,
        key: tuple[str | int, str] | None = None,
        calls: Callable[[int], Reproducible] | None = None,
    ) -> None:
        """Compare arrays of one shape, number by number, which may differ by ``allowed`` and the tolerances.

        ``status`` says where there is nothing to compare with. ``error`` is the error bar where ``allowed`` is another:
        numbers that agree, and are smaller than their bar, prove nothing. They count as 0 where the bar is at the level
        of rounding of their ``scale``: that of the terms they are made of, or of the largest number of the array.
        ``index(i)`` returns the index of the i-th number. Those of the ``indices``, with the shape of the array, that
        ``are_needed`` must be judged once, here or elsewhere: directions here are made to show them. ``key`` names the
        value that the numbers are if the subject has no slot. ``calls(i)`` returns the call that reproduces the i-th
        analytic number.
        """
        wide = (np.asarray(values, np.float64) for values in (analytic, numeric))
        a, n, bar, error = (
            np.ravel(v) for v in np.broadcast_arrays(*wide, allowed, allowed if error is None else error)
        )
        if not a.size:
            return
        digits, is_cancelled = self._digits(a, n, bar, error, scale)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            if analytic.dtype != np.bool_:
                size = np.abs(np.nan_to_num(n, posinf=0, neginf=0))
                bar = bar + self._tolerances.absolute + self._tolerances.relative * size
            n = np.where(np.abs(n) - bar > self._high, np.copysign(np.inf, n), n)
            same, right, ratio = _relative_to_bar(a, n, bar)
            finite = np.fmin(np.abs(a), np.abs(n))
            overflows = (np.isinf(a) != np.isinf(n)) & (finite + bar >= NEAR_OVERFLOW * self._high)
            # Their places in ``_STATUSES``: an array of objects would hold the interpreter's lock.
            statuses = np.zeros(a.shape, np.int8)
            is_hidden = right & ~same & (digits < 0)
            statuses[is_hidden] = _NO_DIGITS
            # Both count as 0.
            statuses[is_hidden & (np.fmax(np.abs(a), np.abs(n)) <= self._least)] = _UNDERFLOW
            # One of the two may overflow rightly: the other is an estimate, or rounds otherwise.
            statuses[overflows] = _NOT_FINITE
            if status is not None and (is_other := np.ravel(status) != Status.OK).any():
                statuses[is_other] = [_STATUSES.index(each) for each in np.ravel(status)[is_other]]
            statuses[is_cancelled & right & (statuses == _NO_DIGITS)] = _OK
            known = statuses == _OK
            self.digits.update(_counts(np.clip(digits[known & right], 0, MOST_DIGITS).astype(np.int8)))
            for where, status_of_it, is_zero in zip(indices, statuses, (a == 0) & (n == 0), strict=False):
                if (are_needed and status_of_it == _NO_DIGITS) or (status_of_it == _OK and not is_zero):
                    self.judge(*where, is_judged=bool(status_of_it == _OK))
            self._wrong_to_right.append((a / n)[known & ~right])
        self.points += a.size
        self.wrong += int((known & ~right).sum())
        self.inconclusive.update({str(_STATUSES[at]): count for at, count in _counts(statuses[~known]).items()})
        ratio = np.where(known, ratio, -0.5)
        at = int(np.argmax(ratio))
        if ratio[at] > self._worst_ratio:
            self._worst_ratio = float(ratio[at])
            where = tuple(map(int, np.unravel_index(at, np.shape(analytic)))) if index is None else index(at)
            value = None if x is None else float(np.ravel(x)[at])
            self.worst = worst_of(
                where, value, float(a[at]), float(n[at]), error_bar=float(bar[at]), dtype=self.subject.dtype
            )
            self._calls, self._worst_at = calls, at
            if key is not None:
                output, name = (key[1], None) if key[0] in ("outputs", "slots") else (None, key[1])
                self.subject = replace(self.subject, output=output, input=name)

    def _digits(self, a: Array, n: Array, bar: Array, error: Array, scale: Array | None) -> tuple[Array, Array]:
        """Return how many digits of numbers are known, and which are only what is left of terms that cancel.

        The digits are fewer than 0 where the error is larger than the number. Those of a number that counts as 0 are
        those of its scale.
        """
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            size = np.fmax(np.abs(a), np.abs(n))
            largest = np.max(size, where=np.isfinite(size), initial=0.0)
            whole: Array = np.broadcast_to(largest if scale is None else np.ravel(scale), size.shape)
            is_cancelled = (size <= CANCELLED * self._unit * whole) & (bar <= CANCELLED_BAR * whole)
            # Without terms, the largest number says nothing of what cancels in others.
            is_cancelled &= scale is not None
            error = np.where(is_cancelled, np.fmin(error, bar), error)
            is_zero = (size == 0) | ((error > size) & ((error <= ROUNDED * whole) | is_cancelled))
            size = np.where(is_zero, whole, size)
            digits = np.nan_to_num(np.floor(-np.log10(error / size)), nan=MOST_DIGITS, posinf=MOST_DIGITS, neginf=-1)
        return np.where((error == 0) | (size == 0), MOST_DIGITS, digits), is_cancelled

    def judge(self, shape: Index, index: Index, *, is_judged: bool) -> None:
        """Note whether a number of arrays of a shape is judged: if it never is, the comparison is inconclusive."""
        self._judged[shape, index] = self._judged.get((shape, index), False) or is_judged

    @property
    def verdict(self) -> Verdict:
        """The verdict: one wrong number is enough to fail, and too few conclusive ones are no pass."""
        if self.wrong:
            return "fail"
        if not self.points:
            return "skipped"
        is_whole = not self._hidden or (self.subject.order, self.subject.dtype) != SHOWING
        return "pass" if is_enough(self.points, self.inconclusive) and is_whole else "inconclusive"

    @property
    def _hidden(self) -> list[Index]:
        """The indices of numbers that are judged nowhere."""
        return [index for (_, index), is_judged in self._judged.items() if not is_judged]

    def finding(self, what: str, against: str) -> Finding:
        """Return the finding: ``what`` compared ``against`` something."""
        reproduction = None
        if self._calls and self.worst and self.verdict in ("fail", "inconclusive"):
            reproduction = self._calls(self._worst_at).reproduction(self.worst.index, self.worst.analytic)
        match self.verdict:
            case "fail":
                sentence = self._failure(what, against, reproduction.directions if reproduction else {})
            case "pass":
                compared = self.points - self.inconclusive.total()
                sentence = f"{what} agrees with {against} at {counted(compared, 'point')}"
                if self.inconclusive:
                    mostly = "" if is_enough(self.points, self.inconclusive, MOST) else "mostly "
                    sentence += f"; {mostly}inconclusive at {self._reasons}"
                if self._hidden:
                    sentence += f", {self._where_hidden(what)}"
            case "inconclusive" if not self.inconclusive:
                sentence = (
                    f"{what} agrees with {against} at {counted(self.points, 'point')}, {self._where_hidden(what)}"
                )
            case "inconclusive":
                sentence = f"{what} cannot be compared with {against} at {self._reasons}"
                if compared := self.points - self.inconclusive.total():
                    sentence += f"; it agrees at {counted(compared, 'point')}, {self._why_inconclusive(what)}"
            case _:
                sentence = f"{what}: nothing to compare"
        worst = self.worst if self.verdict in ("pass", "fail") else None
        return Finding(
            self.subject,
            self.verdict,
            sentence,
            self.points,
            self.evaluations,
            dict(self.inconclusive),
            worst,
            reproduction,
            digits=dict(self.digits),
        )

    def _why_inconclusive(self, what: str) -> str:
        return self._where_hidden(what) if self._hidden else "which is too few"

    def _where_hidden(self, what: str) -> str:
        hidden = self._hidden
        some = ", ".join(f"{what}[{', '.join(map(str, index))}]" for index in hidden[:NAMED])
        more = f" and {len(hidden) - NAMED} more" if len(hidden) > NAMED else ""
        return f"but {some}{more} can be judged nowhere: the error bar is larger than the number"

    @property
    def _reasons(self) -> str:
        return ", ".join(f"{counted(count, 'point')} ({reason})" for reason, count in self.inconclusive.items())

    def _failure(self, what: str, against: str, directions: Mapping[str, float]) -> str:
        worst = self.worst
        assert worst is not None
        index = "" if worst.index is None else f"[{', '.join(map(str, worst.index))}]"
        # Numbers are derivatives in an input, or in the cotangent of an output.
        place = {} if worst.x is None else {self.subject.input or f"d{self.subject.output}": worst.x}
        numbers = ", ".join(f"{name} = {number:.6g}" for name, number in (place | dict(directions)).items())
        at = f" at {numbers}" if numbers else ""
        analytic, numeric = _distinct_texts(worst.analytic, worst.numeric)
        bar = f" ± {worst.error_bar:.2g}" if worst.error_bar and math.isfinite(worst.error_bar) else ""
        sentence = f"{what}{index}{at} is {analytic}, but {against} is {numeric}{bar}"
        return f"{sentence}; {self.wrong} of {counted(self.points, 'point')} wrong{self._pattern}"

    @property
    def _pattern(self) -> str:
        """What all the wrong numbers have in common, which often names the mistake."""
        ratios = np.concatenate(self._wrong_to_right)
        if len(ratios) == 1 or not np.isfinite(ratios).all():
            return ""
        middle = float(np.median(ratios))
        if np.abs(ratios - middle).max() > SAME_RATIO * abs(middle - 1):
            return ""
        known = {-1.0: ": the sign is flipped", 0.0: ": all are 0"}
        # Enough digits to show that the ratio is not 1.
        digits = 4 + max(0, -math.floor(math.log10(abs(middle - 1)))) if middle != 1 else 4
        return known.get(round(middle, 6), f": all are {middle:.{digits}g} times what they should be")


def _counts(numbers: Array) -> dict[int, int]:
    """Return how often each of some small numbers comes."""
    counts = np.bincount(numbers)
    return {int(number): int(counts[number]) for number in np.flatnonzero(counts)}


def _relative_to_bar(a: Array, n: Array, bar: Array) -> tuple[Array, Array, Array]:
    """Return where numbers are the same, where they are within the bar, and how many bars they are apart."""
    same = (a == n) | (np.isnan(a) & np.isnan(n))
    distance = np.where(same, 0.0, np.abs(a - n))
    distance[np.isnan(distance)] = np.inf
    # Within an infinite bar, two numbers may be infinitely far apart: their ratio would be NaN.
    ratio = np.where(same | np.isposinf(bar), 0.0, distance / np.fmax(bar, np.finfo(np.float64).tiny))
    ratio[np.isnan(ratio)] = np.inf
    return same, distance <= bar, ratio


def _distinct_texts(one: float, other: float) -> tuple[str, str]:
    """Return two numbers with enough digits to show that they differ."""
    texts = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in (6, 9, 12, 17))
    return next((pair for pair in texts if pair[0] != pair[1]), (repr(one), repr(other)))
