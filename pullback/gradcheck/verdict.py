"""Verdicts, and the findings that report them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from pullback import findings
from pullback.findings import Check, Worst
from pullback.gradcheck import floats
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.reproduction import Index, Reproduction

Verdict = Literal["pass", "fail", "error", "inconclusive", "skipped"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

LEAST = 0.05
"""Of the numbers that have an expected value, at least this share must be compared."""
UNKNOWN = frozenset({Status.NO_DIGITS, Status.CONTRADICTION, Status.FLAT, Status.TOLERANCE})
"""Why such a number is not compared. Where the reason is another, such as a kink, there is no expected value."""


@dataclass(frozen=True)
class Subject:
    """What a finding is about: the check, the order (0: values), the slot, and how the op was run."""

    check: str
    order: int | None = None
    output: str | None = None
    input: str | None = None
    mode: str = "graph"
    dtype: str = ""


@dataclass(frozen=True)
class Finding:
    """The result of one check of one subject: its verdict, a sentence, the worst element and how to reproduce it.

    ``attrs`` are the op's attributes, ``None`` for those that the check was asked to run with. A
    ``note`` is about a doubtful declaration of the op.
    ``inconclusive`` counts the numbers that could not be compared by reason, and ``digits`` those that are right by the
    digits that the error bar leaves.
    """

    subject: Subject
    verdict: Verdict
    sentence: str
    points: int = 0
    evaluations: int = 0
    inconclusive: Mapping[str, int] = field(default_factory=dict[str, int])
    worst: Worst | None = None
    digits: Mapping[int, int] = field(default_factory=dict[int, int], kw_only=True)
    reproduction: Reproduction | None = None
    attrs: Mapping[str, Any] | None = None
    note: bool = False

    def entry(self, attrs: Mapping[str, Any], device: str = "", seconds: float = 0.0) -> Check:
        """Return the finding as an entry of a report, with these attributes unless it has others."""
        subject, attrs = asdict(self.subject), dict(attrs if self.attrs is None else self.attrs)
        where = {name: subject[name] for name in ("mode", "dtype", "order", "output", "input")}
        return Check(
            **subject,
            verdict=self.verdict,
            note=self.note,
            sentence=self.sentence,
            points=self.points,
            compared=self.points - sum(self.inconclusive.values()),
            evaluations=self.evaluations,
            inconclusive=dict(self.inconclusive),
            digits=dict(sorted(self.digits.items())),
            worst=self.worst,
            reproduce=self.reproduction and self.reproduction.command,
            shows=self.reproduction and self.reproduction.shows,
            point=self.reproduction and self.reproduction.point,
            attrs=attrs,
            device=device,
            seconds=seconds,
            places=[findings.Place(attrs=attrs, device=device, **where)],
        )


def worst_of(
    index: Index | None, x: float | None, analytic: float, numeric: float, *, error_bar: float, dtype: str
) -> Worst:
    """Return a number with its expected value and its errors: two NaNs, or two equal infinities, count as equal."""
    is_same = analytic == numeric or (np.isnan(analytic) and np.isnan(numeric))
    absolute = 0.0 if is_same else abs(analytic - numeric)
    relative = 0.0 if not absolute else absolute / abs(numeric) if numeric else math.inf
    return Worst(index, x, analytic, numeric, error_bar, absolute, relative, floats.ulps(absolute, numeric, dtype))


def worst_verdict(verdicts: Sequence[str]) -> Verdict:
    """Return the verdict on many: the first of fail, error, inconclusive and pass, else inconclusive."""
    for verdict in ("fail", "error", "inconclusive", "pass"):
        if verdict in verdicts:
            return verdict
    return "inconclusive"


def is_enough(points: int, inconclusive: Mapping[str, int], least: float = LEAST) -> bool:
    """Return whether at least this share of the points could be compared that no fault means something.

    Where there is no expected value by nature, as at kinks, nothing is missing; but one point must be compared.
    """
    compared = points - sum(inconclusive.values())
    unknown = sum(count for reason, count in inconclusive.items() if reason in UNKNOWN)
    return compared > 0 and compared >= least * (compared + unknown)
