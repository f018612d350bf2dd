"""Whether a server answers a request as it did before: the same numbers, but for the tolerance of a solver."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadArgument
from pullback.gradcheck.function import LARGEST_TOLERANCE, as_object
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.of.tesseract import ENCODED, decoded
from pullback.gradcheck.sample import largest_of
from pullback.gradcheck.verdict import Finding, Subject

CHECK = "repeat"
MAX_DEPTH = 32


def repeated(before: Any, now: Any, protocol: str, tolerances: Tolerances) -> Finding:
    """Return the finding on two answers to one request, as JSON has them."""
    subject = Subject(CHECK, None, None, None, protocol, "float64")
    first, second = dict(arrays(before)), dict(arrays(now))
    shapes, found = ({path: x.shape for path, x in each.items()} for each in (first, second))
    if shapes != found:
        changed = sorted(path for path in shapes.keys() | found if shapes.get(path) != found.get(path))[0]
        what = f"{changed or 'the answer'} had shape {shapes.get(changed)}, and has {found.get(changed)} now"
        return Finding(subject, "fail", f"the server answers a recorded request with other arrays: {what}")
    comparison = Comparison(subject, tolerances)
    for path, y in second.items():
        allowed = np.array(LARGEST_TOLERANCE * largest_of(first[path]))
        comparison.add(y, first[path], allowed, key=("outputs", path or "answer"))
    return comparison.finding("the answer to a recorded request, asked again,", "the recorded answer")


def arrays(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Array]]:
    """Yield the arrays in an answer, each with its path; text and flags are none."""
    found = as_object(value)
    if depth > MAX_DEPTH:
        return
    if found is not None and found.keys() >= ENCODED and as_object(found["data"]) is not None:
        try:
            yield path, np.asarray(decoded(value, path), np.float64)
        except (ValueError, TypeError, BadArgument):
            yield path, np.zeros(0)
    elif found is not None:
        for name, each in found.items():
            yield from arrays(each, f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list):
        try:
            array = np.asarray(cast(list[Any], value))
        except ValueError:
            array = None
        if array is not None and array.dtype.kind in "fiu":
            yield path, array.astype(np.float64)
            return
        for i, each in enumerate(cast(list[Any], value)):
            yield from arrays(each, f"{path}[{i}]", depth + 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, np.asarray(value, np.float64)
