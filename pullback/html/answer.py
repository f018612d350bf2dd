"""What Python and notebooks show of an answer: its arrays, with their dtypes, shapes and numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, cast

import numpy as np

from pullback.dtypes import Array
from pullback.html.tree import STYLE, element, header, markup, row
from pullback.sparse import parts_of

MOST_TEXT, EDGE = 200, 3
"""The most characters of the numbers of an array, and how many numbers of a long one are shown at each end."""


class Leaf(NamedTuple):
    """An array of an answer, or why there is none."""

    name: str
    value: Array | None
    reason: str

    @property
    def kind(self) -> str:
        """The dtype and the shape."""
        if self.value is None:
            return f"none, {self.reason}"
        # NumPy's names of text, such as <U4, are of its storage.
        dtype = "str" if self.value.dtype.kind == "U" else str(self.value.dtype)
        return f"{dtype}{list(self.value.shape)}"

    @property
    def numbers(self) -> str:
        """The numbers in one line, those in the middle of a long array left out."""
        if self.value is None:
            return ""
        text = np.array2string(self.value, precision=6, threshold=4 * EDGE, edgeitems=EDGE, separator=", ")
        line = " ".join(text.split())
        return line if len(line) <= MOST_TEXT else f"{line[:MOST_TEXT]}…"


def leaves(answer: Any) -> Iterator[Leaf]:
    """Yield the arrays of an answer by name, such as ``gradients.x``, and what is absent."""
    for each in sorted(fields(answer), key=lambda each: each.name == "uncertainty"):
        if each.name not in ("absent", "failed", "no_uncertainty", "sparsity"):
            value, reasons = getattr(answer, each.name), getattr(answer, "absent", {})
            if each.name == "uncertainty":
                reasons = answer.no_uncertainty
            yield from _leaves(each.name, value, reasons, is_top=True)


def _leaves(name: str, value: Any, absent: Any, *, is_top: bool = False) -> Iterator[Leaf]:
    if (parts := parts_of(value)) is not None:
        value = parts
    if isinstance(value, Mapping):
        for key, part in cast(Mapping[str, Any], value).items():
            reason: Any = cast(Mapping[str, Any], absent).get(key, {}) if isinstance(absent, Mapping) else {}
            yield from _leaves(f"{name}.{key}", part, reason)
    elif isinstance(value, list):
        reasons = cast(list[Any], absent) if isinstance(absent, list) else []
        for i, part in enumerate(cast(list[Any], value)):
            yield from _leaves(f"{name}[{i}]", part, reasons[i] if i < len(reasons) else {})
    elif not is_top or value is not None:
        yield Leaf(name, value, absent if isinstance(absent, str) else "absent")


def text_of(answer: Any) -> str:
    """Return an answer as text: a line for each array."""
    rows = [(leaf.name, leaf.kind, leaf.numbers) for leaf in leaves(answer)]
    widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
    lines = [f"  {name:<{widths[0]}}  {kind:<{widths[1]}}  {numbers}".rstrip() for name, kind, numbers in rows]
    return "\n".join([type(answer).__name__, *lines])


def html_of(answer: Any) -> str:
    """Return an answer as a table."""
    rows = [row((leaf.name, leaf.kind, leaf.numbers)) for leaf in leaves(answer)]
    title = element("h3", type(answer).__name__)
    table = element("table", header(("name", "array", "numbers"), 3), element("tbody", *rows))
    return markup(element("div", element("style", STYLE), title, table, class_="pullback"))
