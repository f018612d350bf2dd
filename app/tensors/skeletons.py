"""Skeletons: JSON bodies without their runs of numbers, which are read by themselves.

Bodies with equal skeletons differ only in their numbers: whatever follows from a skeleton is found once.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from app.tensors.casting import NUMBERS, NumberList
from app.tensors.json import Shape
from app.tensors.runs import AFTER, BETWEEN, Raw, Run, end_of_lone, read_run, regular_shape

FlatNumbers: TypeAlias = list[float] | NDArray[np.float64]

# Stands for a run of numbers. JSON has no such character, so no body is equal to a skeleton.
HOLE = b"[\0]"
# A flat list of digits up to this length may be a shape, or a tensor whose numbers are written as integers.
_SHORT_LIST = 64
_DIGITS = b"0123456789, "
_EMPTY = b"[]" + AFTER
# Brackets and what numbers are made of, from a bracket on. The possessive quantifier never goes back: linear time.
_RUN = re.compile(rb"[-+0-9.eE,\[\] \t\r\n]*+")
# The most runs of a body that is split: each takes a microsecond, and a request has one or two for each tensor.
MAX_RUNS = 64
# From this length on, runs become arrays; below, a Python object per number costs less.
LONG_RUN = 1 << 12
# The most lists in a short run. More may be nested deeper, with the lists around them, than ``strict_json`` allows.
MAX_LISTS = 1000


def split(body: bytes | bytearray) -> tuple[bytes, list[bytes | bytearray]] | None:
    """Return the skeleton of a JSON body, with a ``HOLE`` for each run, and the text of each run.

    Takes linear time. A nested list is one run. A list of strings stays in the skeleton, and so does an empty one.
    Returns ``None`` for a body with more than ``MAX_RUNS`` lists.
    """
    skeleton: list[Raw] = []
    texts: list[Raw] = []
    start, following, end, count = body.find(b"["), 0, 0, 0
    while start >= 0:
        if (count := count + 1) > MAX_RUNS:
            return None
        following = body.find(b"[", start + 1)
        stop = body.find(b"]", start, following if following >= 0 else len(body)) + 1
        if not stop:
            if not (stop := end_of_lone(body, start)) and (run := _RUN.match(body, start)):
                stop = run.end()
            following = body.find(b"[", stop)
        text = body[start:stop].rstrip(AFTER)
        if b'"' not in text and text.strip(_EMPTY):
            skeleton += (body[end:start], HOLE)
            texts.append(text)
            end = start + len(text)
        start = following
    skeleton.append(body[end:])
    return b"".join(skeleton), texts


def may_be_shape(text: bytes | bytearray) -> bool:
    """Return whether the text of a run is a short flat list of digits: it may be a shape, and not a tensor."""
    return len(text) <= _SHORT_LIST and not text[1:-1].translate(None, _DIGITS)


def read_lists(texts: Sequence[bytes | bytearray]) -> tuple[FlatNumbers, tuple[Shape, ...]] | None:
    """Return the numbers of all runs, and the shape of each; ``None`` if one of them is not a tensor of numbers."""
    numbers: list[float] = []
    shapes: list[Shape] = []
    try:
        if sum(map(len, texts)) >= LONG_RUN:
            runs = [read_run(text, 0, len(text)) for text in texts]
            values = [run.values for run in runs]
            return values[0] if len(values) == 1 else np.concatenate(values), tuple([run.shape for run in runs])
        for text in texts:
            level: list[Any] = orjson.loads(text)
            shape: Shape = (len(level),)
            while level and isinstance(level[0], list):
                if set(map(type, level)) != {list} or len(lengths := set(map(len, level))) != 1:
                    return None
                shape += (lengths.pop(),)
                level = list(chain.from_iterable(level))
            if not NUMBERS.issuperset(map(type, level)):
                return None
            numbers += level
            shapes.append(shape)
    except (ValueError, TypeError, RuntimeError):  # from the parsers, and for lists that are not tensors
        return None
    return numbers, tuple(shapes)


def shape_of(text: Raw) -> tuple[int, ...] | None:
    """Return the shape of a run that is a tensor of numbers, without reading these; ``None`` if it is no tensor."""
    commas = text.count(b",")
    if text.count(b"[") == 1:
        return (commas + 1,)
    try:
        return regular_shape(text.translate(None, BETWEEN), commas + 1)
    except ValueError:
        return None


def read(raw: Raw, text: Raw, start: int, kind: type[NumberList] = NumberList) -> Run | NumberList:
    """Read the run ``text`` at ``start`` of a body; raise ``ValueError`` if it does not fit."""
    if len(text) >= LONG_RUN:
        with suppress(ValueError):
            return read_run(raw, start, start + len(text))
    if text.count(b"[") > MAX_LISTS:
        raise ValueError("expected fewer lists in a short run")
    run = kind(orjson.loads(text))
    run.start = start
    return run
