"""Heads: the bytes before the body of a request, without the digits of its length, and the frames of such bodies."""

import re
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from app.autodiff.padding import SHARED
from app.express.bodies import read_lists, split
from app.express.frames import MAX_TEXT, Columns, Frame, ListFrame, RangeFrame
from app.http.request import MAX_PATH

LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([1-9][0-9]{0,5})\r\n")
TARGET = re.compile(rb"POST (/[!\"$->@-~]*)(?:\?[!\"$-~]*)? HTTP/1\.1\r\n")
AUTHORIZATION = re.compile(rb"\r\nauthorization:([^\r]*)", re.IGNORECASE)
# With these headers, a response depends on more than the bytes of the request.
OWN_WAY = re.compile(rb"\r\n(?:x-request-id|pullback-deadline-ms|expect|connection:[^\r]*close)", re.IGNORECASE)
END, MAX_HEAD = b"\r\n\r\n", 1 << 11
# Room for two float32 tensors of the most numbers that may share a call. Larger bodies would hold up the event loop.
MAX_BODY = 2 * 4 * SHARED + MAX_TEXT
# The most frames of one head for lists, and lengths of bodies for ranges; and the most frames for ranges of one length.
FRAMES, ALIKE = 16, 4


class Unknown(NamedTuple):
    """A body without a frame; bodies that may have the same frame have the same ``likeness``."""

    likeness: Hashable


@dataclass(eq=False, slots=True)
class Head:
    """A learned head: its target for the log, the key of its requests, and the frames of its bodies.

    ``failures`` counts the requests in a row from which no frame could be learned. ``weight`` is the bytes of memory
    that the frames take, about.
    """

    target: str
    authorization: bytes
    lists: OrderedDict[Hashable, ListFrame] = field(default_factory=OrderedDict[Hashable, ListFrame])
    ranges: OrderedDict[int, list[RangeFrame]] = field(default_factory=OrderedDict[int, list[RangeFrame]])
    failures: int = 0
    weight: int = 0

    def find(self, body: bytes) -> tuple[Frame, Columns | None] | Unknown:
        """Return the frame of a body and the leaves in it, ``None`` if they cannot be read."""
        for in_bytes in self.ranges.get(len(body), ()):
            if in_bytes.fits(body):
                return in_bytes, in_bytes.columns(body)
        parts = split(body)
        found = read_lists(parts[1]) if parts is not None and parts[1] else None
        if parts is None or found is None:
            return Unknown(len(body))
        skeleton, (numbers, shapes) = parts[0], found
        in_lists = self.lists.get((skeleton, shapes))
        return Unknown((len(skeleton), shapes)) if in_lists is None else (in_lists, in_lists.columns(numbers))

    def add(self, body: bytes, frame: Frame) -> None:
        """Keep the frame of a body; the oldest one makes room."""
        if isinstance(frame, ListFrame):
            self.lists[frame.key] = frame
        elif isinstance(frame, RangeFrame):
            self.ranges[len(body)] = [frame, *self.ranges.get(len(body), ())][:ALIKE]
        for frames in (self.lists, self.ranges):
            if len(frames) > FRAMES:
                frames.popitem(last=False)
        self.weight = sum(frame.weight for frame in (*self.lists.values(), *chain.from_iterable(self.ranges.values())))


def cut_off(data: bytes) -> tuple[bytes, int, int] | None:
    """Return the head of a request that is not large, and where its body starts and ends; ``None`` for any other data.

    A part of the body may be missing.
    """
    match = LENGTH.search(data, 0, MAX_HEAD) if data.startswith(b"POST ") else None
    if match is None:
        return None
    (first, last), size = match.span(1), int(match[1])
    start = data.find(END) + len(END)
    if not last < start <= MAX_HEAD or size > MAX_BODY or len(data) > start + size:
        return None
    return data[:first] + data[last:start], start, start + size


def read_head(key: bytes) -> Head | None:
    """Return a head that was cut off, without frames; ``None`` if its requests must go the ordinary way."""
    # Of two headers with one name, the last counts.
    target, (*_, authorization) = TARGET.match(key), [b"", *AUTHORIZATION.findall(key)]
    if target is None or OWN_WAY.search(key) is not None:
        return None
    return Head(target[1][:MAX_PATH].decode("ascii"), authorization.strip())
