"""The lines below a finding: where it holds, its worst number, and how to reproduce it."""

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, isinf

from pullback.counted import counted
from pullback.findings import Check, Worst, place, summary


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
