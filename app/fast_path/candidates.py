"""Candidates: requests of the general path from which templates are made.

Nothing is inferred from numbers. The general path's reader notes which array it decoded from which run or range of the
body (``app.tensors.casting.Source``; binary tensors are views of the body). Its writer has laid out the response, with
a slot for each array. So a template is the record of what the reader and the writer did: the leaves of the evaluation
are arrays of the first, and the slots have results of the evaluation. What has no such record has no template.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from app.autodiff.evaluation import Evaluation
from app.fast_path.shared_calls import SharedCall
from app.fast_path.templates import MAX_TEXT, Range, RangeReader, ResponseTemplate, RunReader, Template
from app.http.problems import Header
from app.requests.answering import PIECE, Exchange
from app.runtime.modes import Key, KeyedArrays
from app.tensors.casting import Source
from app.tensors.fast_json import HOLE, read_lists, split
from app.tensors.json import Decoded
from app.tensors.layouts import Layout
from ops import Array

TEMPLATE_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
# The most results in a response, and the most characters of a number and its comma.
MAX_SLOTS, MAX_DIGITS = 8, 25
STATUS_LINE = b"HTTP/1.1 200 OK\r\n"
# The headers whose values differ from response to response, in their order.
CHANGING = (b"date", b"content-length", b"x-request-id")

CallOf = Callable[[Evaluation[Any]], SharedCall]
"""Returns the call of an evaluation, the same for all that may share one."""


class NotCacheable(Exception):
    """The request has no template. ``is_lasting``: neither has any other request for this op."""

    def __init__(self, *, is_lasting: bool = False) -> None:
        """Say nothing to users: this stays inside the fast path."""
        super().__init__()
        self.is_lasting = is_lasting


@dataclass(eq=False)
class Candidate:
    """A request of the general path: its prefix and body, and what came of it.

    Requests that may have the same template have the same ``likeness``. ``headers`` are those of the response, if its
    status is 200.
    """

    prefix: bytes
    body: bytes
    likeness: Hashable
    headers: Sequence[Header] | None = None
    exchange: Exchange | None = None

    @property
    def names_op(self) -> bool:
        """Whether all requests with this prefix are for one op: those of UM-Bridge name theirs in the body."""
        return self.exchange is not None and self.exchange.names_op


def template_of(candidate: Candidate, deadline_s: float, call_of: CallOf) -> Template:
    """Return the template of a request that has been answered; raises ``NotCacheable``.

    A client that allows less time than ``deadline_s`` has set a deadline, and gets no template.
    """
    exchange, headers = candidate.exchange, candidate.headers
    if exchange is None or headers is None or exchange.allowed_s < deadline_s:
        raise NotCacheable
    if exchange.body != candidate.body:  # it was compressed
        raise NotCacheable
    evaluation = _evaluation(exchange)
    tensors = _tensors(evaluation)
    counters, parse_counters = exchange.call.counters, exchange.counters
    # The bytes of a binary tensor may look like runs.
    has_runs = any(not isinstance(source, Decoded) for source in exchange.call.sources)
    reader = (_run_reader if has_runs else _range_reader)(candidate.body, tensors, exchange)
    response = _response(headers, exchange)
    return Template(reader, call_of(evaluation), evaluation.packed[1], response, counters, parse_counters)


def _run_reader(body: bytes, tensors: Sequence[Array], exchange: Exchange) -> RunReader:
    """Return the reader of bodies like this one, which has runs."""
    skeleton, texts = split(body) or (b"", [])
    if not texts or (found := read_lists(texts)) is None or len(skeleton) > MAX_TEXT:
        raise NotCacheable
    numbers, shapes = found
    # The number of the first element of each run among all numbers, by its position in the body.
    firsts, at, first = dict[int, int](), 0, 0
    for part, text, shape in zip(skeleton.split(HOLE)[:-1], texts, shapes, strict=True):
        firsts[at + len(part)] = first
        at += len(part) + len(text)
        first += math.prod(shape)
    leaves = list[slice | Array]()
    for leaf in tensors:
        source = _source_of(leaf, exchange.call.sources)
        if source is None or source.start not in firsts:
            leaves.append(leaf.reshape(-1).copy())
        else:
            start = firsts[source.start] + source.first
            leaves.append(slice(start, start + leaf.size))
    starts = sorted(leaf.start for leaf in leaves if isinstance(leaf, slice))
    if starts != list(range(0, len(numbers), tensors[0].size)):
        # Not every number of the body is in exactly one leaf.
        raise NotCacheable
    return RunReader(skeleton, shapes, tuple(leaves), tensors[0].dtype)


def _range_reader(body: bytes, tensors: Sequence[Array], exchange: Exchange) -> RangeReader:
    """Return the reader of bodies like this one."""
    found = [_range_of(leaf, exchange) for leaf in tensors]
    ranges = sorted(place for place in found if place is not None)
    starts, stops = (0, *(place.stop for place in ranges)), (*(place.start for place in ranges), len(body))
    around = tuple(body[start:stop] for start, stop in zip(starts, stops, strict=True))
    overlaps = any(one.stop > other.start for one, other in pairwise(ranges))
    if not ranges or overlaps or sum(map(len, around)) > MAX_TEXT:
        raise NotCacheable
    leaves = [
        leaf.reshape(-1).copy() if place is None else ranges.index(place)
        for leaf, place in zip(tensors, found, strict=True)
    ]
    return RangeReader(tuple(leaves), tuple(ranges), around, tensors[0].dtype)


def _source_of(leaf: Array, sources: Sequence[Source]) -> Source | None:
    """Return the source of a leaf, which is the array that was decoded, or a view of all of it."""
    for source in sources:
        array = source.array
        if array is not None and array.size == leaf.size and _address(array) == _address(leaf):
            return source
    return None


def _range_of(leaf: Array, exchange: Exchange) -> Range | None:
    """Return the range of a body in which a leaf is; ``None`` if the leaf is a tensor that the other bytes have."""
    source = _source_of(leaf, exchange.call.sources)
    if isinstance(source, Decoded):
        if source.start < 0:
            raise NotCacheable
        return Range(source.start, source.start + source.length, is_base64=True)
    body = np.frombuffer(exchange.body, np.uint8)
    start = _address(leaf) - _address(body)
    return Range(start, start + leaf.nbytes, is_base64=False) if 0 <= start < body.size else None


def _address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def _evaluation(exchange: Exchange) -> Evaluation[Any]:
    """Return the evaluation of a request if others may share its call, and if all numbers are valid for its op."""
    call = exchange.call
    work = call.work
    if not isinstance(work, Evaluation):
        raise NotCacheable
    spec = work.point.spec
    if spec.batching != "elementwise" or spec.op.validate is not None:
        raise NotCacheable(is_lasting=True)
    if call.is_long or work.batch_key is None:
        raise NotCacheable
    kinds = {(leaf.dtype, leaf.size) for leaf in _tensors(work)}
    if len(kinds) != 1 or next(iter(kinds))[0] not in TEMPLATE_DTYPES:
        raise NotCacheable
    return work


def _tensors(evaluation: Evaluation[Any]) -> list[Array]:
    """Return the leaves of an evaluation without the number attributes."""
    first, count = len(evaluation.program.op.inputs), len(evaluation.point.spec.numbers)
    return [*evaluation.leaves[:first], *evaluation.leaves[first + count :]]


def _response(headers: Sequence[Header], exchange: Exchange) -> ResponseTemplate:
    """Return the template of a response; ``headers`` are all of it, in order."""
    reply, results = exchange.reply, exchange.computed
    layout = reply.layout
    if layout is None or not 0 < len(layout.placeholders) <= MAX_SLOTS or sum(map(len, layout.constants)) > MAX_TEXT:
        raise NotCacheable
    if sum(slot.array.size for slot in layout.placeholders) * MAX_DIGITS > PIECE:
        raise NotCacheable
    keys = tuple(_key_of(slot.array, results) for slot in layout.placeholders)
    without_numbers = Layout(layout.constants, tuple(slot.without_numbers() for slot in layout.placeholders))
    return ResponseTemplate(_head(headers), without_numbers, keys, reply.is_for_finite)


def _key_of(array: Array, results: KeyedArrays) -> Key:
    """Return the key of the result that this array is."""
    for key, result in results.items():
        if result is array and array.dtype in TEMPLATE_DTYPES:
            return key
    raise NotCacheable


def _head(headers: Sequence[Header]) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the head of the response around the values of its changing headers."""
    parts, missing = [STATUS_LINE], list(CHANGING)
    for name, value in headers:
        if name == b"connection":
            raise NotCacheable
        if missing and name == missing[0]:
            parts[-1] += name + b": "
            parts.append(b"\r\n")
            del missing[0]
        else:
            parts[-1] += name + b": " + value + b"\r\n"
    if missing:
        raise NotCacheable
    first, second, third, last = parts
    return first, second, third, last + b"\r\n"
