"""Candidates: requests of the general path from which templates are made.

Nothing is inferred from numbers. The general path's reader notes which array it decoded from which run or range of the
body (``app.tensors.casting.Source``; binary tensors are views of the body). Its writer has laid out the response, with
a slot for each array. So a template records what the reader and the writer did: which arrays of the reader are leaves
of the evaluation, and which of its results are in which slots. A request without such a record has no template.
"""

import logging
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from app.autodiff.derived import origin
from app.autodiff.evaluation import Evaluation
from app.autodiff.padded_numbers import PaddedNumbers
from app.autodiff.padded_rows import PaddedRows
from app.execution.engine import Engine
from app.fast_path.cache import Head, TemplateCache
from app.fast_path.shared_calls import SharedCall
from app.fast_path.templates import MAX_TEXT, Range, RangeReader, ResponseTemplate, RunReader, Template, Values
from app.graphs.document import PREFIX
from app.http.problems import Header
from app.http.quotas import QUOTA_HEADERS
from app.requests.answering import PIECE, Exchange
from app.telemetry.accounts import Owner
from app.tensors import dtypes
from app.tensors.casting import Source
from app.tensors.json import Decoded
from app.tensors.layouts import Placeholder
from app.tensors.skeletons import HOLE, may_be_shape, read_lists, split
from ops import Array, Op, ParameterSet

# The floats that NumPy rounds to once, as the general path does.
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
# The most results in a response, and the most characters of a number and its comma.
MAX_SLOTS, MAX_DIGITS = 8, 25
STATUS_LINE = b"HTTP/1.1 200 OK\r\n"
# The headers whose values differ from response to response, in their order.
CHANGING = (b"date", b"content-length", b"x-request-id")
# Those after the last of them, which only some keys have.
QUOTA = tuple(name.lower().encode() for name in QUOTA_HEADERS)

CallOf = Callable[[Evaluation[Any]], SharedCall]
"""Returns the call of an evaluation, the same for all that may share one."""
logger = logging.getLogger("pullback")


class NotCacheable(Exception):
    """The request has no template."""


@dataclass(eq=False)
class Candidate:
    """A request of the general path: its head and body, and what came of it.

    Requests that may have the same template have the same ``likeness``. ``headers`` are those of the response, if its
    status is 200. ``store`` is called at its end.
    """

    head: Head
    body: bytes
    likeness: Hashable
    store: Callable[[Any], None]
    headers: Sequence[Header] | None = None
    exchange: Exchange | None = None


def template_of(candidate: Candidate, call_of: CallOf) -> Template:
    """Return the template of a request that has been answered; raises ``NotCacheable``."""
    exchange, headers = candidate.exchange, candidate.headers
    if exchange is None or headers is None:
        raise NotCacheable
    if exchange.body != candidate.body:  # it was compressed
        raise NotCacheable
    evaluation = _evaluation(exchange)
    tensors = _tensors(evaluation)
    counters, parse_counters = exchange.call.counters, exchange.counters
    # The bytes of a binary tensor may look like runs.
    has_runs = any(not isinstance(source, Decoded) for source in exchange.call.sources)
    reader = (_run_reader if has_runs else _range_reader)(candidate.body, tensors, exchange)
    response, shapes = _response(headers, exchange), tuple(leaf.shape for leaf in tensors)
    call, size, values = call_of(evaluation), evaluation.packed[1], _values(evaluation)
    paths = exchange.target, exchange.route
    return Template(reader, call, size, shapes, response, counters, parse_counters, *paths, values)


def _values(evaluation: Evaluation[Any]) -> Values | None:
    """Return the check of values that the op has."""
    op, spec = evaluation.point.op, evaluation.point.spec
    names = tuple(slot.name for slot in op.inputs[: spec.fixed.start])
    return Values(op.validate, names, spec.attrs) if op.validate is not None else None


def _run_reader(body: bytes, tensors: Sequence[Array], exchange: Exchange) -> RunReader:
    """Return the reader of bodies like this one, which has runs."""
    skeleton, texts = split(body) or (b"", [])
    if not texts or (found := read_lists(texts)) is None or len(skeleton) > MAX_TEXT:
        raise NotCacheable
    _, shapes = found
    # The number of the first element of each run among all numbers, by its position in the body.
    firsts, ends, at, first = dict[int, int](), list[int](), 0, 0
    for part, text, shape in zip(skeleton.split(HOLE)[:-1], texts, shapes, strict=True):
        firsts[at + len(part)] = first
        at += len(part) + len(text)
        first += math.prod(shape)
        ends.append(first)
    leaves = list[slice | Array]()
    for leaf in tensors:
        source = _source_of(leaf, exchange.call.sources)
        if source is None or source.start not in firsts:
            leaves.append(_constant(leaf))
        else:
            start = firsts[source.start] + source.first
            leaves.append(slice(start, start + leaf.size))
    constants = _constants([leaf for leaf in leaves if isinstance(leaf, slice)], texts, ends)
    return RunReader(skeleton, shapes, tuple(leaves), tuple(dtypes.of(leaf.dtype) for leaf in tensors), constants)


def _constants(
    leaves: Sequence[slice], texts: Sequence[bytes | bytearray], ends: Sequence[int]
) -> tuple[tuple[int, bytes], ...]:
    """Return the texts of the runs that are not tensors, by their positions; ``ends`` are those of all runs.

    Raises ``NotCacheable`` unless every number of every other run is in exactly one leaf.
    """
    taken, constants, at = sorted((leaf.start, leaf.stop) for leaf in leaves), list[tuple[int, bytes]](), 0
    for index, (text, end) in enumerate(zip(texts, ends, strict=True)):
        if taken and taken[0][0] == at:
            while taken and taken[0][0] == at and at < end:
                at = taken.pop(0)[1]
        elif may_be_shape(text):
            constants.append((index, bytes(text)))
            at = end
        if at != end:
            raise NotCacheable
    if taken or not leaves:
        raise NotCacheable
    return tuple(constants)


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
        _constant(leaf) if place is None else ranges.index(place) for leaf, place in zip(tensors, found, strict=True)
    ]
    by_range = [tensors[found.index(place)] for place in ranges]
    sizes, kinds = tuple(leaf.size for leaf in by_range), tuple(dtypes.of(leaf.dtype) for leaf in by_range)
    return RangeReader(tuple(leaves), tuple(ranges), around, kinds, sizes)


def _constant(leaf: Array) -> Array:
    """Return the numbers of a leaf that is the same in all requests; an op's author cannot change them."""
    numbers = leaf.reshape(-1).copy()
    numbers.flags.writeable = False
    return numbers


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
    """Return the evaluation of a request, if it may have a template."""
    call = exchange.call
    work = call.work
    # The directions of a batched evaluation become rows of copies of its point, which the body does not have.
    if not isinstance(work, Evaluation) or call.is_long or work.batched:
        raise NotCacheable
    packing, size = work.packed
    if size > packing.most or (isinstance(packing, PaddedRows) and packing.why_not != ""):
        raise NotCacheable
    # The call of a large request counts as long, unless it is that of a few thousand numbers of an elementwise op.
    if call.is_large and not isinstance(packing, PaddedNumbers):
        raise NotCacheable
    for leaf in _tensors(work):
        if not leaf.size or (leaf.dtype not in FLOATS and leaf.dtype.kind not in "iub"):
            raise NotCacheable
    return work


def _tensors(evaluation: Evaluation[Any]) -> list[Array]:
    """Return the leaves of an evaluation without those that are the same for all requests of a plan."""
    fixed = evaluation.point.spec.fixed
    return [*evaluation.leaves[: fixed.start], *evaluation.leaves[fixed.stop :]]


def _response(headers: Sequence[Header], exchange: Exchange) -> ResponseTemplate:
    """Return the template of a response; ``headers`` are all of it, in order."""
    reply, results = exchange.reply, exchange.computed
    layout = reply.layout
    if layout is None or not 0 < len(layout.placeholders) <= MAX_SLOTS or sum(map(len, layout.constants)) > MAX_TEXT:
        raise NotCacheable
    if sum(map(_most_bytes, layout.placeholders)) > PIECE:
        raise NotCacheable
    if (keyed := layout.keyed(results)) is None:
        raise NotCacheable
    return ResponseTemplate(_head(headers), keyed.layout, keyed.keys, reply.is_for_finite)


def _most_bytes(slot: Placeholder) -> int:
    """Return the most bytes that an array takes in a response."""
    return slot.array.size * (MAX_DIGITS if slot.form in ("flat", "nested") else 2 * slot.array.itemsize)


def _head(headers: Sequence[Header]) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the head of the response around the values of its changing headers."""
    parts, missing = [STATUS_LINE], list(CHANGING)
    for name, value in headers:
        if name == b"connection":
            raise NotCacheable
        if name in QUOTA:
            continue
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


class TemplateMaker:
    """Makes the templates of a process."""

    def __init__(self, engine: Engine, cache: TemplateCache) -> None:
        """Keep the templates in ``cache``."""
        self._graphs, self._sets, self._cache = engine.graphs, engine.sets, cache
        self._calls = WeakValueDictionary[Hashable, SharedCall]()

    def store(self, candidate: Candidate) -> None:
        """Make a template from a request that the general path has answered, if that is possible."""
        head = candidate.head
        if candidate.exchange is None:
            # It was refused. Another one may be answered.
            self._cache.retry_later(candidate.likeness)
            return
        try:
            template = template_of(candidate, self.call_of)
        except NotCacheable:
            head.failures += 1
        except Exception:
            logger.exception("the fast path cannot make a template, and leaves such requests to the general path")
            head.failures += 1
        else:
            head.failures = 0
            self._cache.drop_gone()
            self._cache.store(head, candidate.body, template)

    def call_of(self, evaluation: Evaluation[Any]) -> SharedCall:
        """Return the call of an evaluation, the same for all that may share one."""
        point, packing = evaluation.point, evaluation.packed[0]
        fixed, parameters = point.spec.fixed, point.spec.parameters
        numbers = [leaf if fixed.start <= i < fixed.stop else None for i, leaf in enumerate(evaluation.leaves)]
        # Bytes, because 0.0 == -0.0 although the two give different results.
        digest = parameters.digest if point.spec.held else ""
        key = packing, digest, *(number.tobytes() for number in point.spec.numbers)
        call = self._calls.get(key)
        if call is None:
            dtypes = [leaf.dtype for leaf, number in zip(evaluation.leaves, numbers, strict=True) if number is None]
            kept = self._whether_kept(point.op, parameters)
            call = self._calls[key] = SharedCall(packing, numbers, dtypes, Owner(point.op.owner), *kept)
        return call

    def _whether_kept(self, op: Op, values: ParameterSet) -> tuple[Callable[[], bool], Callable[[], bool]] | tuple[()]:
        """Return the functions that say whether a posted graph, or put parameters, are kept, and are gone.

        There are none for other ops with the values of their page.
        """
        base, graphs, sets = origin(op)[0], self._graphs, self._sets
        if values is not op.own_parameters:
            return partial(sets.is_kept, op, values), lambda: not sets.has(op, values)
        if base.owner != PREFIX:
            return ()
        return (lambda: graphs.has(base) and graphs.is_kept(base.name)), (lambda: not graphs.has(base))
