"""The choices of attributes that a check tries: those of the examples, and those that no example has."""

import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import numpy as np
from pydantic.fields import FieldInfo

from app.autodiff.binding import bind_attrs
from app.errors import Unprocessable
from ops import Op

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
    single = [{name: value} for name, some in values.items() for value in some]
    pairs = [
        {one: a, other: b}
        for one, other in itertools.combinations(op.attrs.static_names(), 2)
        if len(values[one]) * len(values[other]) <= COMBINED
        for a in values[one]
        for b in values[other]
    ]
    known = [op.attrs.model_validate(choice).model_dump() for choice in of_examples(op)]
    found: list[Mapping[str, Any]] = []
    for choice in (*single, *pairs):
        try:
            complete = bind_attrs(op, choice).model_dump()
        except Unprocessable:
            continue
        if complete not in known:
            known.append(complete)
            found.append(choice)
    return found


def _values(info: FieldInfo, default: Any, rng: np.random.Generator) -> list[Any]:
    """Return all values of a Literal or bool; the bounds of a number, and two numbers between them."""
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
    default = float(default)
    size = max(abs(default), 1.0)
    least = default - BEYOND * size if low is None else low
    most = max(least, default) + BEYOND * size if high is None else high
    room = INSIDE * min(most - least, size)
    ends = [least + room * ("gt" in bounds), most - room * ("lt" in bounds)]
    if math.isinf(ends[1] - ends[0]):
        return ends
    return [*ends, *(float(number) for number in rng.uniform(ends[0], ends[1], 2))]
