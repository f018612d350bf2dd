"""The choices of attributes that a check tries: those of the examples, and those that no example has."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import numpy as np
from pydantic.fields import FieldInfo

from app.autodiff.binding import bind_attrs
from app.errors import Unprocessable
from ops import Attrs, Op

# The most combinations of the values of two attributes that are all tried.
COMBINED = 9
# How far inside an open bound, and beyond a number without one, numbers are tried, relative to their size.
INSIDE, BEYOND = 2.0**-6, 2.0


def of_examples(op: Op) -> list[Mapping[str, Any]]:
    """Return the attributes of the examples, each choice once."""
    choices: list[Mapping[str, Any]] = []
    for example in op.examples:
        if dict(example.attrs) not in choices:
            choices.append(dict(example.attrs))
    return choices


def of_no_example(op: Op, seed: int) -> list[Mapping[str, Any]]:
    """Return choices that no example has.

    Every value of a Literal or bool, the bounds of every number, and numbers drawn between them, each with the
    defaults of the other attributes; and all pairs of values of two attributes that have few.
    """
    rng = np.random.default_rng([seed, 7])
    defaults = op.attrs()
    values = {name: _values(info, getattr(defaults, name), rng) for name, info in op.attrs.model_fields.items()}
    known = [_complete(op, choice) for choice in of_examples(op)]
    found: list[Mapping[str, Any]] = []
    for choice in (*_single(values), *_pairs(op.attrs, values)):
        try:
            bind_attrs(op, choice)
        except Unprocessable:
            continue
        if (complete := _complete(op, choice)) not in known:
            known.append(complete)
            found.append(choice)
    return found


def _complete(op: Op, choice: Mapping[str, Any]) -> dict[str, Any]:
    return op.attrs.model_validate(choice).model_dump()


def _single(values: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for name, some in values.items():
        yield from ({name: value} for value in some)


def _pairs(attrs: type[Attrs], values: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for one, other in itertools.combinations(attrs.static_names(), 2):
        if len(values[one]) * len(values[other]) <= COMBINED:
            yield from ({one: a, other: b} for a in values[one] for b in values[other])


def _values(info: FieldInfo, default: Any, rng: np.random.Generator) -> list[Any]:
    kind: Any = info.annotation
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if kind is bool:
        return [False, True]
    bounds = {
        name: float(getattr(m, name)) for m in info.metadata for name in ("ge", "gt", "le", "lt") if hasattr(m, name)
    }
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if kind is int:
        first, last = int(low or 0) + ("gt" in bounds), int(high or 0) - ("lt" in bounds)
        return sorted({first, min(first + 1, last), int(rng.integers(first, last + 1)), last})
    return _numbers(bounds, low, high, float(default), rng)


def _numbers(
    bounds: Mapping[str, float], low: float | None, high: float | None, default: float, rng: np.random.Generator
) -> list[float]:
    """Return the bounds of a number, and two numbers between them."""
    size = max(abs(default), 1.0)
    least = default - BEYOND * size if low is None else low
    most = max(least, default) + BEYOND * size if high is None else high
    room = INSIDE * min(most - least, size)
    ends = [least + room * ("gt" in bounds), most - room * ("lt" in bounds)]
    if math.isinf(ends[1] - ends[0]):
        return ends
    return [*ends, *(float(number) for number in rng.uniform(ends[0], ends[1], 2))]
