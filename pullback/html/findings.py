"""The findings of gradient checks as HTML: their worst numbers, and a table of all checks."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence

from pullback.findings import SHOWN, Check, Worst, place, summary
from pullback.html.tree import SIGNS, element, header
from pullback.wording import counted

WIDTH, ROW, LEFT, RIGHT, HEAD = 640, 18, 110, 20, 26
DECADES = (-8, 8)
TICKS = {-8: "10⁻⁸", -4: "10⁻⁴", 0: "1", 4: "10⁴", 8: "10⁸"}
LINE_WIDTH, LINE_HEIGHT, MARGIN = 320, 44, 60
MOST_FINDINGS, MOST_ROWS, LABELS = 50, 500, 2
"""The most findings that are written out, and the most rows of the table of checks."""
NOT_RUN = "not run"
TITLES = ("verdict", "check", "numbers", "compared", "error bars", "ULP", "seconds")


def bars_off(worst: Worst) -> float:
    """Return how many error bars a number is off: over 1, it is wrong; infinite where it is not finite."""
    if math.isnan(worst.absolute) or math.isinf(worst.absolute):
        return math.inf
    if worst.absolute == 0:
        return 0.0
    return worst.absolute / worst.error_bar if worst.error_bar else math.inf


def distances(checks: Iterable[Check]) -> ET.Element | None:
    """Return a plot of the worst number of each finding by check, in error bars; ``None`` without numbers."""
    rows: dict[str, list[Check]] = {}
    for check in checks:
        if check.worst is not None and not math.isinf(check.worst.error_bar):
            rows.setdefault(check.check, []).append(check)
    if not rows:
        return None
    height = HEAD + ROW * len(rows) + 8
    label = "The worst number of each finding, in error bars: beyond 1, it is wrong"
    plot = element("svg", viewBox=f"0 0 {WIDTH} {height}", width=WIDTH, role="img", aria_label=label)
    for decade, text in TICKS.items():
        x = _position(10.0**decade)
        kind = "limit" if decade == 0 else "axis"
        plot.append(element("line", class_=kind, x1=x, x2=x, y1=HEAD - 6, y2=height - 4))
        plot.append(element("text", text, x=x, y=HEAD - 12, text_anchor="middle"))
    for i, (name, found) in enumerate(rows.items()):
        y = HEAD + ROW * i + ROW // 2
        plot.append(element("text", name, x=LEFT - 10, y=y + 4, text_anchor="end"))
        plot.extend(_mark(check, y) for check in found if check.worst is not None)
    return plot


def _mark(check: Check, y: int) -> ET.Element:
    """Return a circle for a number within its bar, a cross for another."""
    assert check.worst is not None
    off = bars_off(check.worst)
    x = _position(off)
    title = element("title", f"{check.verdict}: {off:.2g} error bars; {check.sentence}")
    if check.verdict == "pass":
        return element("circle", title, class_="mark pass", cx=x, cy=y, r=3.5)
    return element("path", title, class_=f"mark {check.verdict}", d=f"M{x - 4} {y - 4}l8 8m0 -8l-8 8")


def _position(bars: float) -> float:
    low, high = DECADES
    decade = low if bars <= 0 else high if math.isinf(bars) else min(high, max(low, math.log10(bars)))
    return round(LEFT + (WIDTH - LEFT - RIGHT) * (decade - low) / (high - low), 1)


def beside(worst: Worst) -> ET.Element | None:
    """Return a plot of a number beside the expected one with its error bar; ``None`` if they are not finite."""
    bar = worst.error_bar
    ends = [worst.analytic, worst.numeric, worst.numeric - bar, worst.numeric + bar]
    if not all(map(math.isfinite, ends)) or (width := max(ends) - min(ends)) == 0 or not math.isfinite(width):
        return None

    def at(value: float) -> float:
        return round(MARGIN + (LINE_WIDTH - 2 * MARGIN) * ((value - min(ends)) / width), 1)

    y, (analytic, numeric) = LINE_HEIGHT // 2, (at(worst.analytic), at(worst.numeric))
    return element(
        "svg",
        element("line", class_="axis", x1=10, x2=LINE_WIDTH - 10, y1=y, y2=y),
        element("line", class_="mark pass", x1=at(ends[2]), x2=at(ends[3]), y1=y, y2=y),
        element("path", class_="mark pass", d=f"M{numeric} {y - 6}v12"),
        element("text", f"expected {worst.numeric:.6g}", x=numeric, y=y - 10, text_anchor="middle"),
        element("path", class_="mark fail", d=f"M{analytic - 4} {y - 4}l8 8m0 -8l-8 8"),
        element("text", f"got {worst.analytic:.6g}", x=analytic, y=y + 18, text_anchor="middle"),
        viewBox=f"0 0 {LINE_WIDTH} {LINE_HEIGHT}",
        width=LINE_WIDTH,
        role="img",
        aria_label=f"got {worst.analytic:.9g}, expected {worst.numeric:.9g} ± {bar:.2g}",
    )


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
