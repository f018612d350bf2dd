"""The cache of templates: those of a request are found by its parsed head and by its body, without its numbers."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from app.autodiff.padded_numbers import SHARED
from app.fast_path.templates import MAX_TEXT, Columns, RangeReader, RunReader, Template
from app.http.problems import Header
from app.tensors.json import Shape
from app.tensors.skeletons import read_lists, shape_of, split

# The most bytes of the head of a request that has templates.
MAX_HEAD = 1 << 12
# Room for two float64 tensors in base64, of the most numbers that may share a call. Larger bodies would hold up the
# event loop.
MAX_BODY = 2 * 4 * -(-8 * SHARED // 3) + MAX_TEXT
_DIGITS = len(str(MAX_BODY))
# The most templates of one body without its numbers; they differ in lists that are not tensors, such as shapes.
ALIKE = 4
# The most heads that are kept, and the most bytes of all templates.
HEADS, TEMPLATE_BYTES = 256, 1 << 24
# How often a request must come before it gets a template, and how many requests are counted.
SEEN, COUNTED = 2, 4096
# After an inconclusive attempt, the next one comes after this many requests; a power of two.
SOON = 4
# After this many requests in a row from which no template could be made, a head without templates rests: its next
# ``REST`` requests take the general path at once.
FAILURES, REST = 8, 1000


HeadKey: TypeAlias = tuple[bytes | str | Header, ...]
"""What determines the response to a request, besides its body: the target, the version of HTTP, and headers."""
Runs: TypeAlias = tuple[bytes, tuple[Shape | None, ...]]
"""The skeleton of a body, and the shapes of its runs, ``None`` for runs that are not tensors."""


def size_of(headers: Mapping[bytes, bytes]) -> int:
    """Return the size of the body of a request that may have a template, otherwise 0."""
    length = headers.get(b"content-length", b"")
    size = int(length) if length.isdigit() and len(length) <= _DIGITS else 0
    return size if size <= MAX_BODY else 0


class Unknown(NamedTuple):
    """A body without a template; bodies that may have the same template have the same ``likeness``."""

    likeness: Hashable


@dataclass(eq=False, slots=True)
class Alike:
    """The templates of one body without its numbers, and when one of them was used last."""

    templates: list[Template]
    used: int

    @property
    def weight(self) -> int:
        """The bytes of memory that the templates take, about."""
        return sum(template.weight for template in self.templates)


@dataclass(eq=False, slots=True)
class Head:
    """What requests with one key have in common.

    ``failures`` counts the requests in a row from which no template could be made. ``bodies`` has the templates by
    ``Runs``, or by the length of the body. ``skeletons`` are those of the runs.
    """

    used: int
    failures: int = 0
    bodies: dict[Runs | int, Alike] = field(default_factory=dict[Runs | int, Alike])
    skeletons: frozenset[bytes] = frozenset()

    @property
    def weight(self) -> int:
        """The bytes of memory that the templates take, about."""
        return sum(alike.weight for alike in self.bodies.values())

    def note_skeletons(self) -> None:
        """Note the skeletons of the bodies, which have changed."""
        self.skeletons = frozenset(body[0] for body in self.bodies if not isinstance(body, int))


class TemplateCache:
    """The templates of a process, and counts of requests without one. ``weight`` is that of all templates."""

    def __init__(self) -> None:
        """Start empty."""
        self.heads = dict[HeadKey, Head]()
        self._counts = OrderedDict[int, int]()
        self.weight = self._uses = 0

    def head(self, key: HeadKey) -> Head | None:
        """Return the head with this key, ``None`` if it is unknown, or rests."""
        head = self.heads.get(key)
        if head is None:
            if self.is_due(key) and _bytes_of(key) <= MAX_HEAD:
                self._add(key)
            return None
        self._uses += 1
        head.used = self._uses
        # A head with templates never rests: any of its requests may have one.
        if head.failures >= FAILURES and not head.bodies:
            head.failures = FAILURES - 1 if head.failures >= REST else head.failures + 1
            return None
        return head

    def find(self, head: Head, body: bytes) -> tuple[Template, Columns | None] | Unknown:
        """Return the template of a body and the leaves in it, ``None`` if they cannot be read."""
        if (alike := head.bodies.get(len(body))) is not None:
            alike.used = self._uses
            for template in alike.templates:
                if isinstance(template.reader, RangeReader) and template.reader.matches(body):
                    return template, template.reader.columns(body)
        parts = split(body)
        if parts is None:
            return Unknown(len(body))
        skeleton, texts = parts
        lists = read_lists(texts) if skeleton in head.skeletons else None
        shapes = tuple(map(shape_of, texts)) if lists is None else lists[1]
        if (alike := head.bodies.get((skeleton, shapes))) is not None:
            alike.used = self._uses
            for template in alike.templates:
                reader = template.reader
                if isinstance(reader, RunReader) and (not reader.constants or reader.matches(texts)):
                    return template, None if lists is None else reader.columns(lists[0])
        return Unknown((len(skeleton), shapes))

    def store(self, head: Head, body: bytes, template: Template) -> None:
        """Keep the template of a body; the least recently used ones make room."""
        if head not in self.heads.values():
            return
        reader = template.reader
        key = (reader.skeleton, reader.shapes) if isinstance(reader, RunReader) else len(body)
        earlier = head.bodies.get(key)
        self._replace(head, key, [template, *(() if earlier is None else earlier.templates)][:ALIKE])
        if self.weight > TEMPLATE_BYTES:
            self._make_room()

    def drop_gone(self) -> None:
        """Drop the templates of posted graphs and put parameters that are gone."""
        for head in self.heads.values():
            for key, alike in [*head.bodies.items()]:
                if any(template.is_gone for template in alike.templates):
                    self._replace(head, key, [template for template in alike.templates if not template.is_gone])

    def _add(self, key: HeadKey) -> None:
        self.heads[key] = Head(self._uses)
        if len(self.heads) > HEADS:
            oldest = min(self.heads, key=lambda key: self.heads[key].used)
            self.weight -= self.heads.pop(oldest).weight

    def _make_room(self) -> None:
        """Drop the least recently used templates, an eighth of all, so that this is rare."""
        alike = [(alike.used, head, key) for head in self.heads.values() for key, alike in head.bodies.items()]
        for _, head, key in sorted(alike, key=itemgetter(0)):
            if self.weight <= TEMPLATE_BYTES - TEMPLATE_BYTES // 8:
                break
            self._replace(head, key, [])

    def _replace(self, head: Head, key: Runs | int, templates: list[Template]) -> None:
        """Replace the templates of a body."""
        if (earlier := head.bodies.pop(key, None)) is not None:
            self.weight -= earlier.weight
        if templates:
            head.bodies[key] = Alike(templates, self._uses)
            self.weight += head.bodies[key].weight
        head.note_skeletons()

    def is_due(self, thing: Hashable) -> bool:
        """Count a head or a likeness; return whether to try to keep it now.

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


def _bytes_of(key: HeadKey) -> int:
    return sum(len(part) if isinstance(part, bytes | str) else len(part[0]) + len(part[1]) for part in key)
