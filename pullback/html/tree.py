"""Elements of HTML and SVG, whose text is escaped whatever it is, and the style of reports, in light and in dark."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

SIGNS = {"pass": "✓", "fail": "✗", "error": "!", "inconclusive": "?", "skipped": "·"}

STYLE = """
.pullback { --ink: #1d2430; --dim: #5b6575; --line: #d5dae1; --soft: #f3f5f8; --paper: #ffffff;
  --pass: #1a7f37; --fail: #c62828; --error: #8e24aa; --inconclusive: #a36200; --skipped: #5b6575;
  color: var(--ink); background: var(--paper); font: 14px/1.5 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) {
  .pullback { --ink: #e4e8ee; --dim: #9aa5b5; --line: #3a4452; --soft: #1f2630; --paper: #151a21;
    --pass: #57c26f; --fail: #ff7b72; --error: #d58cf0; --inconclusive: #e3a548; --skipped: #9aa5b5; }
}
.pullback h1 { font-size: 22px; margin: 0 0 4px; } .pullback h2 { font-size: 17px; margin: 28px 0 6px; }
.pullback h3 { font-size: 14px; margin: 16px 0 4px; } .pullback p { margin: 4px 0; }
.pullback table { border-collapse: collapse; margin: 8px 0; }
.pullback th, .pullback td { padding: 3px 10px 3px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
.pullback th { font-weight: 600; color: var(--dim); white-space: nowrap; }
.pullback .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.pullback .grid th, .pullback .grid td { padding: 2px 6px; text-align: center; }
.pullback .grid th:first-child, .pullback .grid td:first-child { text-align: left; }
.pullback .grid th.check { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; padding: 6px 0; }
.pullback .scroll { overflow-x: auto; }
.pullback .dim { color: var(--dim); }
.pullback .pass { color: var(--pass); } .pullback .fail { color: var(--fail); font-weight: 600; }
.pullback .error { color: var(--error); font-weight: 600; }
.pullback .inconclusive { color: var(--inconclusive); } .pullback .skipped { color: var(--skipped); }
.pullback .finding { border-left: 3px solid var(--line); padding: 2px 0 2px 12px; margin: 12px 0; }
.pullback .finding.fail { border-color: var(--fail); font-weight: 400; color: var(--ink); }
.pullback .finding.error { border-color: var(--error); font-weight: 400; color: var(--ink); }
.pullback .finding.inconclusive { border-color: var(--inconclusive); color: var(--ink); }
.pullback pre { background: var(--soft); padding: 8px 10px; margin: 6px 0; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 12px/1.45 ui-monospace, monospace; }
.pullback summary { cursor: pointer; } .pullback svg { display: block; max-width: 100%; height: auto; }
.pullback svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
.pullback svg .axis { stroke: var(--line); } .pullback svg .limit { stroke: var(--dim); stroke-dasharray: 3 3; }
@media (max-width: 640px) {
  .pullback .grid th, .pullback .grid td { padding: 2px 0; font-size: 11px; letter-spacing: -0.03em; }
  .pullback .grid td:last-child, .pullback .grid th:last-child { display: none; }
  .pullback .grid th.check { font-size: 10px; line-height: 1; padding: 4px 0; }
  .pullback .grid td:first-child { position: sticky; left: 0; background: var(--paper); padding-right: 4px;
    overflow-wrap: anywhere; min-width: 5em; }
  .pullback .rows, .pullback .rows tbody { display: block; } .pullback .rows thead { display: none; }
  .pullback .rows tr { display: grid; grid-template-columns: repeat(3, 1fr); gap: 0 8px; padding: 6px 0;
    border-bottom: 1px solid var(--line); }
  .pullback .rows td { border: 0; padding: 0; text-align: left; white-space: normal; }
  .pullback .rows td + td:not(.number) { grid-column: 2 / -1; }
  .pullback .rows .number::before { content: attr(data-label); display: block; color: var(--dim); font-size: 11px; }
  .pullback .rows .number:empty { display: none; }
}
.pullback svg .mark { fill: none; stroke: currentColor; stroke-width: 2; }
""".strip()


def element(tag: str, *children: "ET.Element | str | None", **attributes: object) -> ET.Element:
    """Return an element; text is escaped, ``None`` is left out, and ``class_`` and ``font_size`` lose underscores."""
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    found = ET.Element(tag, {names[name]: clean(str(value)) for name, value in attributes.items() if value is not None})
    last: ET.Element | None = None
    for child in children:
        if isinstance(child, ET.Element):
            found.append(child)
            last = child
        elif child:
            if last is None:
                found.text = (found.text or "") + clean(child)
            else:
                last.tail = (last.tail or "") + clean(child)
    return found


def header(titles: Sequence[str], labels: int) -> ET.Element:
    """Return the head of a table whose first columns are labels, and the others numbers."""
    cells = [element("th", title, class_=None if i < labels else "number") for i, title in enumerate(titles)]
    return element("thead", element("tr", *cells))


def row(cells: Iterable[str]) -> ET.Element:
    """Return a row of a table of text."""
    return element("tr", *(element("td", text) for text in cells))


def clean(text: str) -> str:
    """Return text without characters that a page cannot have, or that a reader does not see."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def markup(tree: ET.Element) -> str:
    """Return an element as text."""
    return ET.tostring(tree, encoding="unicode", method="html")
