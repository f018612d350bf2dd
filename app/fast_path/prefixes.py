"""Prefixes: the bytes before the body of a request, without what may vary in them, and their templates, bounded."""

import re
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias

from app.autodiff.padded_numbers import SHARED
from app.fast_path.templates import MAX_TEXT, Columns, RangeReader, RunReader, Template
from app.http.request import MAX_PATH
from app.tensors.json import Shape
from app.tensors.skeletons import read_lists, shape_of, split

LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([1-9][0-9]{0,5})\r\n")
TARGET = re.compile(rb"POST (/[!\"$->@-~]*)(?:\?[!\"$-~]*)? HTTP/1\.1\r\n")
AUTHORIZATION = re.compile(rb"\r\nauthorization:([^\r]*)", re.IGNORECASE)
# Headers whose values differ from request to request, and change nothing in the body of a response. Most come from
# proxies and from clients that trace. A line with other bytes in its value is not among them: it may be invalid.
VARYING = re.compile(
    rb"\r\n(?:traceparent|tracestate|baggage|b3|x-b3-[a-z]+|x-request-id|x-correlation-id|x-amzn-trace-id"
    rb"|x-cloud-trace-context|x-forwarded-[a-z]+|x-real-ip|forwarded|via|cookie|accept-language|pullback-deadline-ms)"
    rb":[\t -~\x80-\xff]*(?=\r\n)",
    re.IGNORECASE,
)
VALUE = re.compile(rb"\r\n([^:]+):[\t ]*([^\r]*)")
# With these headers, a response depends on more than the bytes of the request.
EXCLUDED = re.compile(rb"\r\n(?:x-request-id|pullback-deadline-ms|expect|connection:[^\r]*close)", re.IGNORECASE)
END, MAX_HEAD = b"\r\n\r\n", 1 << 12
# Room for two float64 tensors in base64, of the most numbers that may share a call. Larger bodies would hold up the
# event loop.
MAX_BODY = 2 * 4 * -(-8 * SHARED // 3) + MAX_TEXT
# The most skeletons of one prefix for lists, and lengths of bodies for ranges; and the most templates for each.
TEMPLATES, ALIKE = 16, 4
# The most prefixes that are kept, and the most bytes of all their templates.
PREFIXES, TEMPLATE_BYTES = 256, 1 << 24
# How often a request must come before it gets a template, and how many requests are counted.
SEEN, COUNTED = 2, 4096
# After an inconclusive attempt, the next one comes after this many requests; a power of two.
SOON = 4
# After this many requests in a row from which no template could be made, a prefix without templates rests: its next
# ``REST`` requests take the general path at once.
FAILURES, REST = 8, 1000


Skeleton: TypeAlias = tuple[bytes, tuple[Shape | None, ...]]
"""The skeleton of a body, and the shapes of its runs, ``None`` for runs that are not tensors."""


class Unknown(NamedTuple):
    """A body without a template; bodies that may have the same template have the same ``likeness``."""

    likeness: Hashable


@dataclass(eq=False, slots=True)
class RequestPrefix:
    """A prefix: its target for the log, the key of its requests, and the templates of its bodies.

    ``skeletons`` are those of ``by_skeleton``. ``failures`` counts the requests in a row from which no template could
    be made. ``weight`` is roughly the memory of the templates, in bytes.
    """

    target: str
    authorization: bytes
    by_skeleton: OrderedDict[Skeleton, list[Template]] = field(default_factory=OrderedDict[Skeleton, list[Template]])
    skeletons: frozenset[bytes] = frozenset()
    by_length: OrderedDict[int, list[Template]] = field(default_factory=OrderedDict[int, list[Template]])
    failures: int = 0
    weight: int = 0

    def find(self, body: bytes) -> tuple[Template, Columns | None] | Unknown:
        """Return the template of a body and the leaves in it, ``None`` if they cannot be read."""
        for template in self.by_length.get(len(body), ()):
            if isinstance(template.reader, RangeReader) and template.reader.matches(body):
                return template, template.reader.columns(body)
        parts = split(body)
        if parts is None:
            return Unknown(len(body))
        skeleton, texts = parts
        found = read_lists(texts) if skeleton in self.skeletons else None
        shapes = tuple(map(shape_of, texts)) if found is None else found[1]
        for template in self.by_skeleton.get((skeleton, shapes), ()):
            reader = template.reader
            if isinstance(reader, RunReader) and (not reader.constants or reader.matches(texts)):
                return template, None if found is None else reader.columns(found[0])
        return Unknown((len(skeleton), shapes))

    def add(self, body: bytes, template: Template) -> None:
        """Keep the template of a body; the oldest one makes room."""
        if isinstance(template.reader, RunReader):
            key = template.reader.skeleton, template.reader.shapes
            self.by_skeleton[key] = [template, *self.by_skeleton.get(key, ())][:ALIKE]
        else:
            self.by_length[len(body)] = [template, *self.by_length.get(len(body), ())][:ALIKE]
        for templates in (self.by_skeleton, self.by_length):
            if len(templates) > TEMPLATES:
                templates.popitem(last=False)
        self._tally()

    @property
    def templates(self) -> list[Template]:
        """All templates."""
        return [*chain(*self.by_skeleton.values(), *self.by_length.values())]

    def drop_gone(self) -> None:
        """Drop the templates of posted graphs that are gone."""
        for key, templates in [*self.by_skeleton.items()]:
            self.by_skeleton[key] = [template for template in templates if not template.is_gone]
            if not self.by_skeleton[key]:
                del self.by_skeleton[key]
        for size, templates in [*self.by_length.items()]:
            self.by_length[size] = [template for template in templates if not template.is_gone]
            if not self.by_length[size]:
                del self.by_length[size]
        self._tally()

    def _tally(self) -> None:
        self.skeletons = frozenset(skeleton for skeleton, _ in self.by_skeleton)
        self.weight = sum(template.weight for template in self.templates)


class Cut(NamedTuple):
    """A request, whose body may not be whole: the key of its prefix, its varying headers, and the range of its body."""

    key: bytes
    own: bytes
    start: int
    end: int

    def values(self) -> dict[bytes, bytes]:
        """Return the values of the varying headers by their names, in lower case; the last one counts."""
        return {name.lower(): value for name, value in VALUE.findall(self.own)}


def cut(data: bytes) -> Cut | None:
    """Cut a request that is not large; return ``None`` for other data."""
    match = LENGTH.search(data, 0, MAX_HEAD) if data.startswith(b"POST ") else None
    if match is None:
        return None
    (first, last), size = match.span(1), int(match[1])
    start = data.find(END) + len(END)
    if not last < start <= MAX_HEAD or size > MAX_BODY or len(data) > start + size:
        return None
    head = data[:first] + data[last:start]
    own = b"".join(VARYING.findall(head))
    return Cut(VARYING.sub(b"", head) if own else head, own, start, start + size)


def parse_prefix(key: bytes) -> RequestPrefix | None:
    """Return a prefix without templates; ``None`` if its requests must take the general path."""
    # Of two headers with one name, the last counts.
    target, (*_, authorization) = TARGET.match(key), [b"", *AUTHORIZATION.findall(key)]
    if target is None or EXCLUDED.search(key) is not None:
        return None
    return RequestPrefix(target[1][:MAX_PATH].decode("ascii"), authorization.strip())


class TemplateCache:
    """The prefixes of a process, ``None`` for those whose requests take the general path; and counts of the others."""

    def __init__(self) -> None:
        """Start empty."""
        self.prefixes = OrderedDict[bytes, RequestPrefix | None]()
        self._counts = OrderedDict[int, int]()
        self._weight = 0

    def find(self, key: bytes) -> RequestPrefix | None:
        """Return the prefix with these bytes, ``None`` if it is unknown, or rests."""
        prefix = self.prefixes.get(key)
        if prefix is None:
            return None
        self.prefixes.move_to_end(key)
        # A prefix with templates never rests: any of its requests may have one.
        if prefix.failures >= FAILURES and not prefix.weight:
            prefix.failures = FAILURES - 1 if prefix.failures >= REST else prefix.failures + 1
            return None
        return prefix

    def add(self, key: bytes, prefix: RequestPrefix | None) -> None:
        """Keep a prefix without templates, ``None`` for one whose requests take the general path."""
        self.prefixes[key] = prefix
        self._make_room()

    def store(self, prefix: RequestPrefix, body: bytes, template: Template) -> None:
        """Keep the template of a body under a prefix that is kept."""
        self._weight -= prefix.weight
        prefix.add(body, template)
        self._weight += prefix.weight
        self._make_room()

    def drop_gone(self) -> None:
        """Drop the templates of posted graphs that are gone."""
        for prefix in self.prefixes.values():
            if prefix is not None and any(template.is_gone for template in prefix.templates):
                self._weight -= prefix.weight
                prefix.drop_gone()
                self._weight += prefix.weight

    def _make_room(self) -> None:
        """Drop the least recently used prefixes while there are too many, or too many bytes of templates."""
        while len(self.prefixes) > PREFIXES or self._weight > TEMPLATE_BYTES:
            _, prefix = self.prefixes.popitem(last=False)
            self._weight -= prefix.weight if prefix is not None else 0

    def is_due(self, thing: Hashable) -> bool:
        """Count a prefix or a likeness; return whether to try to keep it now.

        That is so when it has come ``SEEN`` times, and then at each doubling: what has no template by then may differ
        from request to request.
        """
        mark = hash(thing)
        count = self._counts.pop(mark, 0) + 1
        self._counts[mark] = count
        if len(self._counts) > COUNTED:
            self._counts.popitem(last=False)
        return count >= SEEN and count.bit_count() == 1

    def retry_later(self, thing: Hashable) -> None:
        """Try again after ``SOON`` more requests: the last one did not show whether there can be a template."""
        self._counts[hash(thing)] = SOON
