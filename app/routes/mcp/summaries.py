"""Bounded texts for language models: summaries of arrays, and documents that leave out what is too much."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from app.autodiff.absent import Absent
from app.requests.digits import Tree
from app.routes.native.derivatives import leaves
from app.tensors.layouts import encode, lay_out
from app.tensors.strict_json import dumps
from ops import Array

# The most bytes of a document, which a result has twice: as text, with every quote escaped, and as an object.
MAX_DOCUMENT = 8000
# How much is shown, until the document is short enough: the numbers of a whole array, and of a summary, and the arrays.
SHOWN = ((64, 8, 64), (16, 4, 64), (0, 2, 16), (0, 1, 6))
# The largest of the whole numbers that no other one is rounded to in float64.
SAFE = 2**53 - 1
# How many numbers are summarised at a time: other threads run in between, and the copy as float64 takes little memory.
PART = 1 << 16

Level = TypeVar("Level")


def summary(array: Array, whole: int, first: int) -> dict[str, Any]:
    """Return an array in its typed form if it has at most ``whole`` numbers, else a summary with the ``first`` numbers.

    The least, the largest and the mean number, and the Euclidean norm, are those of the finite numbers; ``None`` if
    there are none. For bools, the mean is the share that is true. For complex numbers they are those of the absolute
    values.
    """
    if array.size <= whole:
        return _typed(array)
    flat = array.reshape(-1)
    typed = _typed(flat[:first])
    document: dict[str, Any] = {"dtype": typed["dtype"], "shape": list(array.shape), "size": array.size}
    return document | _statistics(flat) | {"first": typed["data"]}


def _typed(array: Array) -> dict[str, Any]:
    """Return the typed form of an array, where whole numbers that float64 cannot hold are strings.

    What runs models reads numbers of JSON as float64.
    """
    typed = encode(array, "nested")
    if array.dtype.kind in "iu" and ((array > SAFE) | (array < -SAFE)).any():
        texts = [each if -SAFE <= each <= SAFE else str(each) for each in array.reshape(-1).tolist()]
        typed["data"] = np.array(texts, object).reshape(array.shape).tolist()
    return typed


def _statistics(flat: Array) -> dict[str, Any]:
    """Return the statistics of an array of one axis."""
    parts = range(0, flat.size, PART)
    finite, least, largest = 0, math.inf, -math.inf
    for start in parts:
        numbers = _finite(flat[start : start + PART])
        if numbers.size:
            finite += numbers.size
            least, largest = min(least, float(numbers.min())), max(largest, float(numbers.max()))
    if not finite:
        return {"nonfinite": flat.size, "min": None, "max": None, "mean": None, "norm": None}
    # Scaled, so that neither the sum nor the squares overflow.
    scale = max(abs(least), abs(largest)) or 1.0
    total = squares = 0.0
    for start in parts:
        scaled = _finite(flat[start : start + PART]) / scale
        total += float(scaled.sum())
        squares += float(scaled @ scaled)
    mean, norm = scale * (total / finite), scale * math.sqrt(squares)
    numbers = {"min": least, "max": largest, "mean": mean, "norm": norm if math.isfinite(norm) else "Infinity"}
    return {"nonfinite": flat.size - finite, **numbers}


def _finite(part: Array) -> Array:
    """Return the finite numbers of an array as float64, absolute values in place of complex numbers."""
    numbers = np.abs(part) if part.dtype.kind == "c" else part
    numbers = np.asarray(numbers, np.float64)
    return numbers[np.isfinite(numbers)]


def tensors_document(answer: Mapping[str, Tree], others: Mapping[str, Any], rest: Mapping[str, Any]) -> bytes:
    """Return the document with the tensors of an answer by their paths, and with ``others``, which are always there.

    ``rest``, which says how to get the whole, is added if something is left out.
    """
    found = dict(leaves(answer))

    def document(level: tuple[int, int, int]) -> dict[str, Any]:
        whole, first, most = level
        arrays = {path: leaf for path, leaf in found.items() if not isinstance(leaf, Absent)}
        absent = {path: str(leaf) for path, leaf in found.items() if isinstance(leaf, Absent)}
        shown = {path: summary(arrays[path], whole, first) for path in list(arrays)[:most]}
        left_off = len(found) - len(shown) - min(len(absent), most)
        made = {**others, "tensors": shown, "absent": dict(list(absent.items())[:most]), "left_off": left_off}
        is_whole = not left_off and all("data" in each for each in shown.values())
        return made if is_whole else {**made, "whole": rest}

    return fitting(SHOWN, document)


def fitting(levels: Sequence[Level], document: Callable[[Level], Mapping[str, Any]]) -> bytes:
    """Return the text of the document of the first level that is short enough; the last must be."""
    for level in levels:
        text = b"".join(lay_out(document(level)).pieces()).rstrip()
        if len(text) <= MAX_DOCUMENT:
            return text
    raise AssertionError("the document of the last level is too long")


def result_of(document: bytes) -> bytes:
    """Return the result of a tool with this document: as an object, and as text."""
    text = dumps(document.decode()).rstrip()
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":false}' % (text, document)
