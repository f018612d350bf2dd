"""The findings of gradient checks, and their places in a few words.

``in 8 places: graph, eager x float32, float64, float16, bfloat16``
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite, isinf, prod
from typing import Any, Literal, TypeAlias

from pullback.wording import counted

SHOWN = ("fail", "error", "inconclusive")
"""The verdicts of the checks that a report shows one by one."""
Counting: TypeAlias = Literal["pass", "fail"]
"""As what an inconclusive check counts."""
MOST = 8
"""The most places that are listed one by one."""


def is_accepted(verdict: str, inconclusive: Counting) -> bool:
    """Return whether a check, or an op, with this verdict passes, for the command and for the plugin of pytest."""
    return (inconclusive if verdict == "inconclusive" else verdict) in ("pass", "skipped")


@dataclass(frozen=True)
class Worst:
    """The element of a gradient with the largest error, beside its expected value.

    ``error_bar`` is the difference that is allowed, ``x`` the input there; ``index`` is ``None`` along a random
    direction.
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
class Place:
    """A place where a finding holds."""

    attrs: Mapping[str, Any]
    mode: str
    dtype: str
    device: str
    order: int | None
    output: str | None
    input: str | None


@dataclass(frozen=True, repr=False, kw_only=True)
class Check:
    """The result of one check; ``inconclusive`` counts the elements without a verdict, by reason.

    ``digits`` counts those that are right by the digits that the error bar leaves.

    ``reproduce`` is a command that returns the worst number, in the part of its answer that ``shows`` names; ``point``
    has its tensors.

    A ``note`` is about a doubtful declaration of the op; its verdict is pass, or fail with ``strict_claims``.

    A finding that holds in several ``places`` has one sentence; its attributes, mode and so on are those of the first.
    The fields are in the order of the report.
    """

    check: str
    order: int | None
    output: str | None
    input: str | None
    mode: str
    dtype: str
    verdict: str
    note: bool = False
    sentence: str
    points: int
    compared: int
    evaluations: int
    inconclusive: Mapping[str, int]
    digits: Mapping[int, int] = field(default_factory=dict[int, int])
    worst: Worst | None
    reproduce: str | None = None
    shows: str | None = None
    point: Mapping[str, Any] | None = None
    attrs: Mapping[str, Any]
    device: str
    seconds: float
    places: list[Place]

    def __repr__(self) -> str:
        return f"Check({place(self)}: {self.verdict}: {self.sentence})"


@dataclass(frozen=True)
class Coverage:
    """How many of the numbers of a check, of one order and dtype, could be compared.

    ``digits`` counts those that are right by the digits that the error bar leaves.
    """

    check: str
    order: int | None
    dtype: str
    points: int
    compared: int
    digits: Mapping[int, int] = field(default_factory=dict[int, int])


def place(check: Check) -> str:
    """Return what all places of a check have in common: ``derivative, dy/dx, order 1, float32, graph, cpu``."""
    pair, order, mode, dtype, device, attrs = (
        column[0] if len(set(column)) == 1 else "" for column in _columns(check.places)
    )
    return ", ".join(part for part in (check.check, pair, order, dtype, mode, device, attrs) if part)


def outcome(op: str, checks: Sequence[Check], not_run: str) -> str:
    """Return what the checks found, in one sentence: ``square: 1 of 12 checks failed: derivative, 2 not run``.

    Beside failures, what is inconclusive and what is doubtful do not matter. ``not_run`` is "" if all checks ran.
    """
    count = Counter(check.verdict for check in checks)
    failed = sorted({check.check for check in checks if check.verdict == "fail"})
    if failed:
        parts = [f"{count['fail']} of {counted(len(checks), 'check')} failed: {', '.join(failed)}"]
    else:
        notes = sum(check.note for check in checks)
        parts = [f"{counted(count['pass'], 'check')} passed"]
        parts += [f"{count['inconclusive']} inconclusive"] if count["inconclusive"] else []
        parts += [counted(notes, "note")] if notes else []
    parts += [f"{count['error']} broke off"] if count["error"] else []
    return f"{op}: {', '.join([*parts, *([not_run] if not_run else [])])}"


def summary(places: Sequence[Place]) -> str:
    """Return where the places differ, as a product if they are all combinations; "" for a single place."""
    if len(places) == 1:
        return ""
    columns = [list(parts) for parts in _columns(places) if len(set(parts)) > 1]
    values = [[part or "none" for part in dict.fromkeys(column)] for column in columns]
    rows = list(dict.fromkeys(zip(*columns, strict=True)))
    if prod(map(len, values)) == len(rows):
        text = " x ".join(", ".join(parts) for parts in values)
    else:
        text = "; ".join(", ".join(part for part in row if part) for row in islice(rows, MOST))
        text += f"; and {len(rows) - MOST} more" if len(rows) > MOST else ""
    return f"in {len(places)} places: {text}" if text else f"in {len(places)} places"


def _columns(places: Sequence[Place]) -> Iterator[tuple[str, ...]]:
    """Yield the parts of the places, a column for each kind."""
    yield tuple(_pair(place.output, place.input) for place in places)
    yield tuple("" if place.order is None else f"order {place.order}" for place in places)
    yield tuple(place.mode for place in places)
    yield tuple(place.dtype for place in places)
    yield tuple(place.device for place in places)
    yield tuple(", ".join(f"{name}={value}" for name, value in place.attrs.items()) for place in places)


def _pair(output: str | None, input_: str | None) -> str:
    if output is not None and input_ is not None:
        return f"d{output}/d{input_}"
    return input_ or output or ""


def text_of(op: str, checks: Iterable[Check]) -> Iterator[str]:
    """Yield the lines of findings, as ``pullback check`` prints them."""
    every = list(checks)
    for check in every:
        yield f"{check.verdict.upper()} {op} {place(check)}"
        yield from (f"  {line}" for line in (check.sentence, *lines(check, every)))


def lines(check: Check, findings: Sequence[Check] = ()) -> list[str]:
    """Return the lines below the sentence of a check: its places, and its worst element or why it is inconclusive.

    One wrong factor in a gradient fails other checks too, which compare it with right code: below the first of the
    ``findings`` on the gradient, a line says so.
    """
    result = [text] if (text := summary(check.places)) else []
    if check.verdict == "fail" and check.worst is not None:
        result += element(check.worst, "analytic", "numeric", check.input or f"d{check.output}")
    elif check.verdict != "fail" and check.inconclusive:
        result.append(f"no verdict: {', '.join(f'{count} {reason}' for reason, count in check.inconclusive.items())}")
    result += reproduction(check)
    failed = [each for each in findings if each.verdict == "fail"]
    of_gradient = [each for each in failed if each.check == "derivative"]
    if of_gradient and of_gradient[0] is check and len(failed) > len(of_gradient):
        others = counted(len(failed) - len(of_gradient), "other finding")
        result.append(f"{others} may follow from this one: correct it first")
    return result


def reproduction(check: Check) -> list[str]:
    """Return the command that reproduces the worst number of a check, after the place of the number in its answer."""
    if check.reproduce is None:
        return []
    of_fault = "analytic" if check.worst is not None else "to reproduce"
    where = "the number" if check.verdict == "inconclusive" else of_fault
    return [f"{where}: {check.shows} of", f"  {check.reproduce}"] if check.shows else [f"{where}: {check.reproduce}"]


def element(worst: Worst, left: str, right: str, leaf: str = "x") -> Iterator[str]:
    """Yield an element, with its two numbers side by side, and their difference; ``leaf`` is the name of its input."""
    index = "" if worst.index is None else f"[{', '.join(map(str, worst.index))}]"
    at = "" if worst.x is None else f"at {leaf} = {worst.x:.9g}"
    head = " ".join(part for part in ("worst element", index, at) if part)
    bar = f" ± {worst.error_bar:.2g}" if worst.error_bar and isfinite(worst.error_bar) else ""
    expected = "expected a finite number" if isinf(worst.error_bar) else f"{right} {worst.numeric:.9g}{bar}"
    yield f"{head}:  {left} {worst.analytic:.9g}  |  {expected}"
    if isinf(worst.error_bar):
        return
    sizes = (("difference {:.3g}", worst.absolute), ("relative {:.3g}", worst.relative), ("{:.3g} ULP", worst.ulps))
    if known := [text.format(size) for text, size in sizes if isfinite(size)]:
        yield ", ".join(known)
