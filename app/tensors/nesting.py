"""The shape of nested lists of numbers, from their brackets and commas alone."""

import math

from app.tensors.dtypes import MAX_RANK

# Everything in the text of nested lists but brackets and commas.
BETWEEN = b"0123456789+-.eE \t\r\n"


def brackets_of(text: bytes | bytearray) -> bytes | bytearray:
    """Return the brackets and commas of the JSON text of nested lists of numbers."""
    return text.translate(None, BETWEEN)


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
