"""Runs of numbers in the text of a JSON document: nested lists of numbers and of the words for NaN and the infinities.

A long run is read in parts, so that other threads can take the interpreter between two parts.
"""

import math
import re
import threading
from dataclasses import dataclass

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from app.tensors import casting
from app.tensors.casting import BRACKETS_TO_BLANKS, NONFINITE, NUMBERS, Numbers
from app.tensors.dtypes import MAX_RANK

# A piece of a run. Possessive quantifiers never go back, and their limits bound the time of one match.
_PIECE = re.compile(rb'(?:[-+0-9.eE,\[\] \t\r\n]{1,4096}+|"(?:NaN|-?Infinity)"){0,64}+')
_BLANKS = b" \t\r\n"
AFTER = b"," + _BLANKS
# Everything in a run but brackets and commas.
BETWEEN = b'0123456789+-.eE"NaInfity' + _BLANKS
# Next to a comma, or in an empty list, a number is missing.
_GAPS = (b"[,", b",]", b"[]")
_SIGNS_AND_DIGITS = tuple(b"%c" % character for character in b"-0123456789")

Raw = bytes | bytearray


class _Thread(threading.local):
    """The parser of a thread, which keeps its memory for the next text."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()


_THREAD = _Thread()
# A parser keeps a dozen times the length of its longest text.
_LARGE = 2 * casting.PART


@dataclass(eq=False, slots=True)
class Run:
    """The numbers of a run, in row-major order; the run is ``raw[start:end]``.

    ``brackets`` has its brackets and commas, and is empty for a flat list.
    """

    values: NDArray[np.float64]
    raw: Raw
    start: int
    end: int
    brackets: bytes = b""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor; raises ``ValueError`` if its lists differ in length."""
        return regular_shape(self.brackets, self.values.size) if self.brackets else (self.values.size,)

    def tensor(self) -> Numbers:
        """Return the run as a tensor; raise ``ValueError`` if its lists differ in length."""
        numbers = Numbers(self.values, self.shape, memoryview(self.raw)[self.start : self.end])
        numbers.start = self.start
        return numbers

    def rows(self) -> list[Numbers]:
        """Return a list of flat lists, of any lengths, as tensors; raise ``ValueError`` for any other run."""
        first, at = 0, self.start + 1
        rows: list[Numbers] = []
        for length in lengths_of(self.brackets, self.values.size):
            begin = self.raw.find(b"[", at)
            at = self.raw.find(b"]", begin) + 1
            text = memoryview(self.raw)[begin:at]
            row = Numbers(self.values[first : first + length], (length,), text)
            row.start, row.first = self.start, first
            rows.append(row)
            first += length
        return rows


def end_of_run(raw: Raw, start: int) -> int:
    """Return where the run ends that begins with the bracket at ``start``; commas and blanks after it do not count."""
    following = raw.find(b"[", start + 1)
    closing = raw.find(b"]", start, following if following >= 0 else len(raw))
    if closing >= 0 and raw[start + 1 : start + 2] in _SIGNS_AND_DIGITS and raw.find(b'"', start, closing) < 0:
        # A flat list, whatever else it has: to look at each character would take as long as to parse it.
        return closing + 1
    end = start
    while (piece := _PIECE.match(raw, end)) and piece.end() > end:
        end = piece.end()
    while not (kept := raw[max(start, end - casting.PART) : end].rstrip(AFTER)):
        end = max(start, end - casting.PART)
    return max(start, end - casting.PART) + len(kept)


def end_of_lone(raw: Raw, start: int) -> int:
    """Return where the list at ``start`` ends if it has one list inside, or one in one and so on; otherwise 0."""
    head = raw[start : start + MAX_RANK]
    depth = len(head) - len(head.lstrip(b"["))
    following = raw.find(b"[", start + depth)
    end = raw.find(b"]", start + depth, following if following >= 0 else len(raw))
    return end + depth if end >= 0 and raw.startswith(b"]" * depth, end) else 0


def read_run(raw: Raw, start: int, end: int) -> Run:
    """Read the run ``raw[start:end]``; raise ``ValueError`` if it is not lists of numbers, or has an empty list."""
    is_flat = raw.find(b"[", start + 1, end) < 0
    if is_flat and end - start <= casting.PART:
        return Run(_read_list(raw[start:end]), raw, start, end)
    if not raw.endswith(b"]", start, end):
        raise ValueError("expected a list that ends")
    if not is_flat and end - start <= casting.PART and end_of_lone(raw, start) == end:
        depth = raw.rfind(b"[", start, min(start + MAX_RANK, end)) - start + 1
        numbers = _read_list(raw[start + depth - 1 : end - depth + 1])
        return Run(numbers, raw, start, end, b"[" * depth + b"," * (len(numbers) - 1) + b"]" * depth)
    values: list[NDArray[np.float64]] = []
    brackets: list[Raw] = []
    begin, last = (start + 1, end - 1) if is_flat else (start, end)
    while True:
        comma = raw.find(b",", begin + casting.PART, last)
        stop = last if comma < 0 else comma
        part = raw[begin:stop]
        if not is_flat:
            brackets.append(part.translate(None, BETWEEN))
            part = _flat(part)
        values.append(_read_list(b"[%b]" % part))
        if stop == last:
            numbers = values[0] if len(values) == 1 else np.concatenate(values)
            return Run(numbers, raw, start, end, b",".join(brackets))
        begin = stop + 1


def _flat(part: Raw) -> Raw:
    """Return a part of a run, between two commas, without its brackets; raise ``ValueError`` where a number is missing.

    After this, nothing else would notice a missing number.
    """
    compact = b",%b," % part.translate(None, _BLANKS)
    if any(gap in compact for gap in _GAPS):
        raise ValueError("expected a number between two commas")
    return part.translate(BRACKETS_TO_BLANKS)


def _read_list(text: Raw) -> NDArray[np.float64]:
    """Return the numbers of a flat list; raise ``ValueError`` if it has none, or anything else."""
    try:
        parsed = (_THREAD.parser if len(text) <= _LARGE else simdjson.Parser()).parse(text)
        if isinstance(parsed, simdjson.Array) and len(parsed):
            return np.frombuffer(parsed.as_buffer(of_type="d"), np.float64)
    except (ValueError, TypeError, RuntimeError):  # from simdjson, for words and for integers beyond 64 bits
        pass
    items: list[float | str] = orjson.loads(text)
    if not items or not {str, *NUMBERS}.issuperset(map(type, items)):
        raise ValueError("expected numbers")
    return np.array([NONFINITE[item] if isinstance(item, str) else item for item in items], np.float64)


def regular_shape(brackets: bytes | bytearray, count: int) -> tuple[int, ...]:
    """Return the shape of nested lists with these brackets and commas, and ``count`` numbers in all.

    The text must be valid JSON. Takes linear time. Raises ``ValueError`` if the lists of a level differ in length, if
    the innermost ones are empty, and for a rank over ``MAX_RANK``.
    """
    rank = len(brackets) - len(brackets.lstrip(b"["))
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"expected a rank from 1 to {MAX_RANK}")
    # What a list of each level looks like, from the innermost one out: the first one shows how many items it has.
    shape: list[int] = []
    item = b""
    for depth in range(1, rank + 1):
        begin, end = rank - depth, brackets.find(b"]" * depth)
        size = (end + depth - begin - 1) // (len(item) + 1)
        shape.insert(0, size)
        item = b"[%b]" % ((item + b",") * size)[:-1]
    if item != brackets or math.prod(shape) != count:
        raise ValueError("expected lists of one length at each level")
    return tuple(shape)


def lengths_of(brackets: bytes, count: int) -> list[int]:
    """Return the lengths of the flat lists in a list with these brackets and commas, and ``count`` numbers in all.

    The text must be valid JSON. Raises ``ValueError`` if the list has anything but flat lists, or an empty one.
    """
    lengths = [len(row) + 1 for row in brackets[2:-2].split(b"],[")]
    if b"[[%b]]" % b"],[".join(b"," * (length - 1) for length in lengths) != brackets or sum(lengths) != count:
        raise ValueError("expected a list of flat lists")
    return lengths
