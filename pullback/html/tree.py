"""Elements of HTML and SVG, whose text is escaped whatever it is."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence


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
