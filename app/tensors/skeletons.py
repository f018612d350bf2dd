"""The skeleton of a JSON body: its bytes without the runs of numbers, which are lists, flat or nested."""

import re
from collections.abc import Sequence
from itertools import chain

# Stands for a run of numbers. JSON has no such character, so no body is equal to a skeleton.
HOLE = b"[\0]"
# A flat list of digits up to this length may be a shape, or a tensor whose numbers are written as integers.
SHORT = 64
DIGITS = b"0123456789, "
# Brackets and what numbers are made of, from a bracket on. The possessive quantifier never goes back: linear time.
RUN = re.compile(rb"[-+0-9.eE,\[\] \t\r\n]*+")
AFTER = b", \t\r\n"
EMPTY = b"[]" + AFTER
# The most runs of a body that is split: each takes a microsecond, and a request has one or two for each tensor.
MAX_RUNS = 64


def split(body: bytes | bytearray) -> tuple[bytes, list[bytes | bytearray]] | None:
    """Return the skeleton of a JSON body, with a ``HOLE`` for each run, and the text of each run.

    Takes linear time. A nested list is one run. A list of strings stays in the skeleton, and so does an empty one.
    ``join`` puts the skeleton and the texts of a JSON body together again. Returns ``None`` for a body with more than
    ``MAX_RUNS`` lists.
    """
    skeleton, texts, end, count = list[bytes | bytearray](), list[bytes | bytearray](), 0, 0
    start, following = body.find(b"["), 0
    while start >= 0:
        if (count := count + 1) > MAX_RUNS:
            return None
        following = body.find(b"[", start + 1)
        stop = body.find(b"]", start, following if following >= 0 else len(body)) + 1
        if not stop and (run := RUN.match(body, start)):
            stop = run.end()
            following = body.find(b"[", stop)
        text = body[start:stop].rstrip(AFTER)
        if b'"' not in text and text.strip(EMPTY):
            skeleton += (body[end:start], HOLE)
            texts.append(text)
            end = start + len(text)
        start = following
    skeleton.append(body[end:])
    return b"".join(skeleton), texts


def may_be_shape(text: bytes | bytearray) -> bool:
    """Return whether the text of a run is a short flat list of digits: it may be a shape, and not a tensor."""
    return len(text) <= SHORT and not text[1:-1].translate(None, DIGITS)


def join(skeleton: bytes, texts: Sequence[bytes]) -> bytes:
    """Return the body with these texts in its holes."""
    first, *rest = skeleton.split(HOLE)
    return first + b"".join(chain.from_iterable(zip(texts, rest, strict=True)))
