"""The findings of gradient checks as HTML: their worst numbers, and a table of all checks."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from pullback.counted import counted
from pullback.findings import SHOWN, Check, Worst, place, summary
from pullback.html.plots import bars_off, beside, distances
from pullback.html.style import SIGNS
from pullback.html.tree import element, header

MOST_FINDINGS, MOST_ROWS, LABELS = 50, 500, 2
"""The most findings that are written out, and the most rows of the table of checks."""
NOT_RUN = "not run"
TITLES = ("verdict", "check", "numbers", "compared", "error bars", "ULP", "seconds")


def verdict(text: str) -> ET.Element:
    """Return a verdict with its sign."""
    return element("span", f"{SIGNS.get(text, '')} {text}", class_=text)


def findings(checks: Sequence[Check]) -> Iterator[ET.Element]:
    """Yield what is to be read, a plot of the worst numbers, and a table of all checks."""
    told = [check for check in checks if check.verdict in SHOWN or check.note]
    yield from map(_finding, told[:MOST_FINDINGS])
    if len(told) > MOST_FINDINGS:
        yield element("p", f"and {counted(len(told) - MOST_FINDINGS, 'more finding')}", class_="dim")
    if (plot := distances(checks)) is not None:
        heading = "The worst number of each finding, in error bars (beyond 1: wrong)"
        yield element("details", element("summary", heading), plot, open="" if told else None)
    not_run = dict[str, list[str]]()
    for check in checks:
        if check.verdict == "skipped" and check.sentence.startswith(NOT_RUN):
            not_run.setdefault(check.sentence, []).append(check.check)
    ran = [check for check in checks if check.sentence not in not_run]
    rows = [_row(check) for check in ran[:MOST_ROWS]]
    rows_table = element("table", header(TITLES, LABELS), element("tbody", *rows), class_="rows")
    table = element("div", rows_table, class_="scroll")
    yield element("details", element("summary", f"All of {counted(len(ran), 'finding')}"), table)
    for sentence, names in not_run.items():
        yield element("p", f"{', '.join(dict.fromkeys(names))}: {sentence}", class_="dim")


def _finding(check: Check) -> ET.Element:
    heading = f" {place(check)}{': a note' if check.note else ''}"
    parts = [element("h3", verdict(check.verdict), heading), element("p", check.sentence)]
    if places := summary(check.places):
        parts.append(element("p", places, class_="dim"))
    if check.inconclusive:
        reasons = ", ".join(f"{count} {reason}" for reason, count in check.inconclusive.items())
        parts.append(element("p", f"no verdict: {reasons}", class_="dim"))
    if check.verdict == "fail" and check.worst is not None:
        parts.append(element("p", _worst(check.worst, check.input or f"d{check.output}")))
        if (plot := beside(check.worst)) is not None:
            parts.append(plot)
    if check.reproduce is not None:
        where = f"{check.shows} of" if check.shows else "to reproduce"
        parts += [element("p", where, class_="dim"), element("pre", check.reproduce)]
    return element("div", *parts, class_=f"finding {check.verdict}")


def _worst(worst: Worst, leaf: str) -> str:
    index = "" if worst.index is None else f" [{', '.join(map(str, worst.index))}]"
    at = "" if worst.x is None else f" at {leaf} = {worst.x:.9g}"
    sizes = (("difference {:.3g}", worst.absolute), ("relative {:.3g}", worst.relative), ("{:.3g} ULP", worst.ulps))
    known = ", ".join(text.format(size) for text, size in sizes if math.isfinite(size))
    expected = f"expected {worst.numeric:.9g} ± {worst.error_bar:.2g}"
    if math.isinf(worst.error_bar):
        return f"worst element{index}{at}: {worst.analytic:.9g}, expected a finite number"
    return f"worst element{index}{at}: {worst.analytic:.9g}, {expected}{f' ({known})' if known else ''}"


def _row(check: Check) -> ET.Element:
    worst = check.worst
    has_bar = worst is not None and not math.isinf(worst.error_bar)
    numbers = [str(check.points), str(check.compared)]
    numbers += [f"{bars_off(worst):.2g}", f"{worst.ulps:.3g}"] if worst is not None and has_bar else ["", ""]
    numbers.append(f"{check.seconds:.3f}")
    cells = [element("td", verdict(check.verdict)), element("td", place(check), title=check.sentence)]
    labelled = zip(TITLES[LABELS:], numbers, strict=True)
    return element("tr", *cells, *(element("td", text, class_="number", data_label=title) for title, text in labelled))
