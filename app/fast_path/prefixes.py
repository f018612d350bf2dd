"""Prefixes: the bytes before the body of a request, without the digits of its length, and the templates of bodies."""

import re
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias

from app.autodiff.padding import SHARED
from app.fast_path.bodies import Shape, read_lists
from app.fast_path.templates import MAX_TEXT, Columns, RangeReader, RunReader, Template
from app.http.request import MAX_PATH
from app.tensors.skeletons import split

LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([1-9][0-9]{0,5})\r\n")
TARGET = re.compile(rb"POST (/[!\"$->@-~]*)(?:\?[!\"$-~]*)? HTTP/1\.1\r\n")
AUTHORIZATION = re.compile(rb"\r\nauthorization:([^\r]*)", re.IGNORECASE)
# With these headers, a response depends on more than the bytes of the request.
EXCLUDED = re.compile(rb"\r\n(?:x-request-id|pullback-deadline-ms|expect|connection:[^\r]*close)", re.IGNORECASE)
END, MAX_HEAD = b"\r\n\r\n", 1 << 11
# Room for two float32 tensors of the most numbers that may share a call. Larger bodies would hold up the event loop.
MAX_BODY = 2 * 4 * SHARED + MAX_TEXT
# The most templates of one prefix for lists, and lengths of bodies for ranges; and the most templates for one length.
TEMPLATES, ALIKE = 16, 4


Skeleton: TypeAlias = tuple[bytes, tuple[Shape, ...]]
"""The skeleton of a body, and the shapes of its runs."""


class Unknown(NamedTuple):
    """A body without a template; bodies that may have the same template have the same ``likeness``."""

    likeness: Hashable


@dataclass(eq=False, slots=True)
class RequestPrefix:
    """A prefix: its target for the log, the key of its requests, and the templates of its bodies.

    ``failures`` counts the requests in a row from which no template could be made. ``weight`` is the bytes of memory
    that the templates take, about.
    """

    target: str
    authorization: bytes
    by_skeleton: OrderedDict[Skeleton, Template] = field(default_factory=OrderedDict[Skeleton, Template])
    by_length: OrderedDict[int, list[Template]] = field(default_factory=OrderedDict[int, list[Template]])
    failures: int = 0
    weight: int = 0

    def find(self, body: bytes) -> tuple[Template, Columns | None] | Unknown:
        """Return the template of a body and the leaves in it, ``None`` if they cannot be read."""
        for template in self.by_length.get(len(body), ()):
            if isinstance(template.reader, RangeReader) and template.reader.matches(body):
                return template, template.reader.columns(body)
        parts = split(body)
        found = read_lists(parts[1]) if parts is not None and parts[1] else None
        if parts is None or found is None:
            return Unknown(len(body))
        skeleton, (numbers, shapes) = parts[0], found
        template = self.by_skeleton.get((skeleton, shapes))
        if template is None or not isinstance(template.reader, RunReader):
            return Unknown((len(skeleton), shapes))
        return template, template.reader.columns(numbers)

    def add(self, body: bytes, template: Template) -> None:
        """Keep the template of a body; the oldest one makes room."""
        if isinstance(template.reader, RunReader):
            self.by_skeleton[template.reader.skeleton, template.reader.shapes] = template
        else:
            self.by_length[len(body)] = [template, *self.by_length.get(len(body), ())][:ALIKE]
        for templates in (self.by_skeleton, self.by_length):
            if len(templates) > TEMPLATES:
                templates.popitem(last=False)
        kept = (*self.by_skeleton.values(), *chain.from_iterable(self.by_length.values()))
        self.weight = sum(template.weight for template in kept)


def cut(data: bytes) -> tuple[bytes, int, int] | None:
    """Return the prefix of a request that is not large, and where its body starts and ends; ``None`` for other data.

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


def parse_prefix(key: bytes) -> RequestPrefix | None:
    """Return a prefix without templates; ``None`` if its requests must take the general path."""
    # Of two headers with one name, the last counts.
    target, (*_, authorization) = TARGET.match(key), [b"", *AUTHORIZATION.findall(key)]
    if target is None or EXCLUDED.search(key) is not None:
        return None
    return RequestPrefix(target[1][:MAX_PATH].decode("ascii"), authorization.strip())
