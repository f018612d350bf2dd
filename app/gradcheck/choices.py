"""The choices of attributes that checks try: those of the examples, some that no example has, and combinations."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import covertable
import numpy as np
from pydantic.fields import FieldInfo

from app.autodiff.binding import bind_attrs
from app.errors import Unprocessable
from ops import Op

# The most combinations of the values of two attributes that are all tried, and of the values of all attributes.
COMBINED, EXHAUSTED = 9, 32
# The most integers of one attribute that are all combined with others, and the most rows of a covering array.
INTEGERS, COVERING = 32, 128
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
    return list(_new(op, [*single, *pairs], of_examples(op)))


def combinations(op: Op, seed: int, accepts: Callable[[Mapping[str, Any]], bool]) -> Iterator[Mapping[str, Any]]:
    """Yield up to ``COVERING`` further choices: all combinations of values up to ``EXHAUSTED``, else each pair once.

    Where the op does not accept the combination with a pair, the pair comes with the defaults of the other attributes.
    """
    rng, defaults = np.random.default_rng([seed, 7]), op.attrs()
    values = {name: _combined(info, getattr(defaults, name), rng) for name, info in op.attrs.model_fields.items()}
    every: Iterable[Mapping[str, Any]]
    if math.prod(map(len, values.values())) <= EXHAUSTED:
        every = (dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values()))
    else:
        rows = covertable.make_async(values, min(2, len(values)), criterion=covertable.criteria.simple, salt=str(seed))
        every = itertools.chain.from_iterable([row] if accepts(row) else _pairs(row) for row in rows)
    return itertools.islice(_new(op, every, [*of_examples(op), *of_no_example(op, seed)]), COVERING)


def _pairs(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return map(dict[str, Any], itertools.combinations(row.items(), 2))


def _new(
    op: Op, found: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the valid choices that differ from each other and from the others."""
    known = [op.attrs.model_validate(choice).model_dump() for choice in others]
    for choice in found:
        try:
            complete = bind_attrs(op, choice).model_dump()
        except Unprocessable:
            continue
        if complete not in known:
            known.append(complete)
            yield choice


def _combined(info: FieldInfo, default: Any, rng: np.random.Generator) -> list[Any]:
    """Return the default and the values to combine with those of other attributes: all integers, if they are few.

    Of more, the two smallest: large ones are often sizes, and two of them together make arrays of millions of numbers.
    """
    values = _values(info, default, rng)
    if info.annotation is int:
        first, last = _ends(info)
        values = [*range(first, last + 1 if last - first < INTEGERS else first + 2)]
    return list(dict.fromkeys([default, *values]))


def _values(info: FieldInfo, default: Any, rng: np.random.Generator) -> list[Any]:
    """Return all values of a Literal or bool; the bounds of a number, and two numbers between them."""
    kind: Any = info.annotation
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if kind is bool:
        return [False, True]
    if kind is int:
        first, last = _ends(info)
        return sorted({first, min(first + 1, last), int(rng.integers(first, last + 1)), last})
    bounds = _bounds(info)
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    default = float(default)
    size = max(abs(default), 1.0)
    least = default - BEYOND * size if low is None else low
    most = max(least, default) + BEYOND * size if high is None else high
    room = INSIDE * min(most - least, size)
    ends = [least + room * ("gt" in bounds), most - room * ("lt" in bounds)]
    if math.isinf(ends[1] - ends[0]):
        return ends
    return [*ends, *(float(number) for number in rng.uniform(ends[0], ends[1], 2))]


def _bounds(info: FieldInfo) -> dict[str, float]:
    return {
        name: float(getattr(m, name)) for m in info.metadata for name in ("ge", "gt", "le", "lt") if hasattr(m, name)
    }


def _ends(info: FieldInfo) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer."""
    bounds = _bounds(info)
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    return int(low or 0) + ("gt" in bounds), int(high or 0) - ("lt" in bounds)
