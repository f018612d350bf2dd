"""Runs of numbers in the text of a JSON document: nested lists of numbers and of the words for NaN and the infinities.

A long run is read in parts, so that other threads can take the interpreter between two parts.
"""

import math
import re
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


@dataclass(frozen=True, eq=False)
class Run:
    """The numbers of a run, in row-major order; the run is ``raw[start:end]``, with these brackets and commas."""

    values: NDArray[np.float64]
    raw: Raw
    start: int
    end: int
    brackets: bytes

    def tensor(self) -> Numbers:
        """Return the run as a tensor; raise ``ValueError`` if its lists differ in length."""
        shape = regular_shape(self.brackets, self.values.size)
        numbers = Numbers(self.values, shape, memoryview(self.raw)[self.start : self.end])
        numbers.start = self.start
        return numbers

    def rows(self) -> list[Numbers]:
        """Return a list of flat lists, of any lengths, as tensors; raise ``ValueError`` for any other run."""
        rows, first, at = list[Numbers](), 0, self.start + 1
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


def read_run(raw: Raw, start: int, end: int) -> Run:
    """Read the run ``raw[start:end]``; raise ``ValueError`` if it is not lists of numbers, or has an empty list."""
    parser, begin = simdjson.Parser(), start
    values, brackets = list[NDArray[np.float64]](), list[bytes]()
    while True:
        comma = raw.find(b",", begin + casting.PART, end)
        stop = end if comma < 0 else comma
        part = bytes(raw[begin:stop])
        is_flat = b"[" not in part and b"]" not in part
        values.append(_read_part(parser, part if is_flat else _flat(part)))
        brackets.append(b"," * (values[-1].size - 1) if is_flat else part.translate(None, BETWEEN))
        if stop == end:
            return Run(np.concatenate(values), raw, start, end, b",".join(brackets))
        begin = stop + 1


def _flat(part: bytes) -> bytes:
    """Return a part of a run, between two commas, without its brackets; raise ``ValueError`` where a number is missing.

    After this, nothing else would notice a missing number.
    """
    compact = b",%b," % part.translate(None, _BLANKS)
    if any(gap in compact for gap in _GAPS):
        raise ValueError("expected a number between two commas")
    return part.translate(BRACKETS_TO_BLANKS)


def _read_part(parser: simdjson.Parser, part: bytes) -> NDArray[np.float64]:
    """Return the numbers in a part of a flat list, between two commas."""
    text = b"[%b]" % part
    try:
        parsed = parser.parse(text)
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
    shape, item = list[int](), b""
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
