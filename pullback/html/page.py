"""The page of ``pullback check --html``: one file, without scripts, that loads nothing."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence

from pullback.html.findings import verdict
from pullback.html.tree import SIGNS, STYLE, element, markup
from pullback.reports import Report, section
from pullback.wording import counted

WORST_FIRST = ("fail", "error", "inconclusive", "pass", "skipped")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
LAYOUT = "body { margin: 0; } main { max-width: 1000px; margin: 0 auto; padding: 24px 16px 64px; }"


def page(
    reports: Sequence[Report],
    unavailable: Mapping[str, str],
    *,
    is_interrupted: bool = False,
) -> str:
    """Return the reports as a page; ``unavailable`` maps ops to reasons."""
    counts = {name: sum(report.verdict == name for report in reports) for name in WORST_FIRST}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no ops"
    parts = [element("h1", "Gradient checks"), element("p", f"{counted(len(reports), 'op')}: {told}")]
    if is_interrupted:
        parts.append(element("p", "The checks were interrupted: these are the ops that were checked.", class_="error"))
    for op, reason in unavailable.items():
        parts.append(element("p", verdict("error"), f" {op} is unavailable: {reason}"))
    if reports:
        parts.append(_grid(reports))
    order = sorted(range(len(reports)), key=lambda i: WORST_FIRST.index(reports[i].verdict))
    for i in order:
        parts += section(reports[i], anchor=f"op-{i}")
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Gradient checks: {told}"),
        element("style", f"{STYLE}\n{LAYOUT}"),
    ]
    body = element("body", element("main", *parts), class_="pullback")
    return f"<!doctype html>\n{markup(element('html', element('head', *head), body, lang='en'))}\n"


def _grid(reports: Sequence[Report]) -> ET.Element:
    """Return the worst verdict of each check of each op."""
    checks = list(dict.fromkeys(check.check for report in reports for check in report.checks))
    names = [element("th", name, class_="check") for name in checks]
    rows = list[ET.Element]()
    for i, report in enumerate(reports):
        found = {name: [check.verdict for check in report.checks if check.check == name] for name in checks}
        cells = [_cell(name, min(verdicts, key=WORST_FIRST.index, default="")) for name, verdicts in found.items()]
        link = element("a", report.op, href=f"#op-{i}", class_=report.verdict)
        seconds = element("td", f"{report.seconds:.1f} s", class_="number dim")
        rows.append(element("tr", element("td", link), element("td", verdict(report.verdict)), *cells, seconds))
    head = element("tr", element("th", "op"), element("th", "verdict"), *names, element("th", ""))
    table = element("table", element("thead", head), element("tbody", *rows), class_="grid")
    legend = ", ".join(f"{sign} {name}" for name, sign in SIGNS.items())
    return element("div", table, element("p", legend, class_="dim"), class_="scroll")


def _cell(check: str, worst: str) -> ET.Element:
    return element("td", SIGNS.get(worst, ""), class_=worst or None, title=f"{check}: {worst}" if worst else None)
