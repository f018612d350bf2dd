"""The places of a finding, in a few words: ``in 8 places: graph, eager x float32, float64, float16, bfloat16``."""

from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod

from pullback.reports import Check, Place

MOST = 8
"""The most places that are listed one by one."""


def place(check: Check) -> str:
    """Return what all places of a check have in common: ``derivative, dy/dx, order 1, float32, graph, cpu``."""
    pair, order, mode, dtype, device, attrs = (
        column[0] if len(set(column)) == 1 else "" for column in _columns(check.places)
    )
    return ", ".join(part for part in (check.check, pair, order, dtype, mode, device, attrs) if part)


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
