"""Lessons: how the express way learns a frame, by asking the ordinary way what it does with marked numbers.

The ordinary way has answered a request. Its reader then reads the body twice more, with marks in place of the numbers:
that shows which number of the body is which element of which leaf. Its writer writes marked results: that shows where
each result is in the response. The marks differ in every position, and in their signs from one reading to the next.

Marks show places, not what a reader or a writer does with every number. So the finished frame is compared with both on
the numbers of ``edges``. If anything differs, or if the frame would have answered the request with other bytes, the
express way learns nothing.

A lesson runs on a thread of its own, because it takes as long as several requests.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from app.autodiff import padding
from app.autodiff.evaluation import Evaluation, present
from app.express import bodies, edges
from app.express.bodies import Range, Shape
from app.express.calls import Call
from app.express.frames import MAX_TEXT, NUMPY, Form, Frame, Hole, ListFrame, RangeFrame, Response, write
from app.http.deadlines import Deadline
from app.http.problems import Header
from app.http.request import Request
from app.requests.answering import PIECE, Job, Reader
from app.runtime.modes import KeyedArrays
from app.telemetry.counters import Counters
from app.tensors import dtypes
from ops import Array

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
# The most results of a program.
MAX_RESULTS = 8
# The most characters of a number and its comma.
MAX_DIGITS = 25
# The distance between the marks of two tensors, which is also the most numbers of each. A mark is an integer plus
# ``RAGGED``: its float32 has another text than the same number in float64, so the text shows the dtype.
APART, RAGGED = padding.SHARED, 0.1
SIGNS = (1, -1)
HEAD = re.compile(
    rb"(HTTP/1\.1 200 OK\r\ndate: )[^\r]+(\r\n(?:[^\r]+\r\n)*content-length: )[0-9]+"
    rb"(\r\n(?:[^\r]+\r\n)*x-request-id: )[A-Za-z0-9._-]+(\r\n(?:[^\r]+\r\n)*\r\n)"
)


Common: TypeAlias = tuple[Call, int, Response, Counters, Counters]
"""The fields of ``Frame``."""


class Unteachable(Exception):
    """The request has no frame. ``is_lasting``: no other request to this head has one, as far as its op shows."""

    def __init__(self, *, is_lasting: bool = False) -> None:
        """Say nothing to users: this stays inside the express way."""
        super().__init__()
        self.is_lasting = is_lasting


class NotBrief(Exception):
    """The call of an evaluation is not known to be brief; ``is_measured`` if it is known not to be."""

    def __init__(self, evaluation: Evaluation[Any], *, is_measured: bool) -> None:
        """Keep the evaluation, for a trial."""
        super().__init__()
        self.evaluation, self.is_measured = evaluation, is_measured


@dataclass(eq=False)
class Lesson:
    """A request of the ordinary way: its head and body, its reader and deadline, and the bytes of its response.

    Requests that may have the same frame have the same ``likeness``.
    """

    head: bytes
    body: bytes
    likeness: Hashable = None
    sent: list[bytes] = field(default_factory=list[bytes])
    reader: Reader | None = None
    deadline: Deadline | None = None

    def note(self, request: Request, reader: Reader) -> None:
        """Note the reader and the deadline of the request."""
        self.reader, self.deadline = reader, request.deadline

    @property
    def has_succeeded(self) -> bool:
        """Whether the request was answered, and not refused."""
        return bool(self.sent) and self.sent[0].startswith(b"HTTP/1.1 200")

    def learn(self, allowed_s: float, call_of: Callable[[Evaluation[Any]], Call]) -> Frame:
        """Return the frame of the request; ``call_of`` returns the call of its evaluation, which runs once.

        A client that allows less time than ``allowed_s`` has set a deadline, and gets no frame. Raises ``Unteachable``,
        and whatever the reader, the program and the writer raise.
        """
        head, _, body = b"".join(self.sent).partition(b"\r\n\r\n")
        match = HEAD.fullmatch(head + b"\r\n\r\n")
        if match is None or b"\r\nconnection:" in head.lower() or self.reader is None or self.deadline is None:
            raise Unteachable
        job = self.reader.read(self.body)
        evaluation = _evaluation(job)
        call = call_of(evaluation)
        reading = _lists(self.reader, self.body, evaluation) or _ranges(self.reader, self.body, evaluation)
        if reading is None or self.deadline.allowed_s < allowed_s:
            raise Unteachable
        results = _results(evaluation)
        # A header may depend on the length of the numbers, which differs with their sign.
        first, second = (_marked_response(job, results, sign) for job, sign in zip(reading.jobs, SIGNS, strict=True))
        texts, holes, _ = first
        is_large = evaluation.size * len(holes) * MAX_DIGITS > PIECE
        if not holes or first != second or is_large or sum(map(len, texts)) > MAX_TEXT:
            raise Unteachable
        start, before_length, before_id, end = match.groups()
        response = Response((start, before_length, before_id, end), texts, holes)
        if _written(response, results) != body or not _writes_alike(job, results, response):
            raise Unteachable
        frame = reading.frame(call, evaluation.size, response, job.counters, self.reader.counters)
        if not edges.reads_alike(frame, self.body, partial(_leaves_of, self.reader, evaluation)):
            raise Unteachable
        return frame


class _Reading(NamedTuple):
    """What two readings of marked bodies have shown: their jobs, and a function that returns the frame."""

    jobs: Sequence[Job]
    frame: Callable[[*Common], Frame]


def _lists(reader: Reader, body: bytes, evaluation: Evaluation[Any]) -> _Reading | None:
    """Return the readings of a body that has its numbers in lists, ``None`` for any other body."""
    text, lists = bodies.split(body) or (b"", [])
    found = bodies.read_lists(lists) if lists else None
    if found is None or len(text) > MAX_TEXT or not len(found[0]):
        return None
    shapes, count, size, dtype = found[1], len(found[0]), evaluation.size, evaluation.leaves[0].dtype
    marks = [_marks(count, 0, sign) for sign in SIGNS]
    jobs = [reader.read(bodies.join(text, _lists_of(row, shapes))) for row in marks]
    leaves = list[slice | Array]()
    for of_job in _leaves(jobs, evaluation):
        place = slice(start := int(of_job[0][0]), start + size)
        is_marked = all(np.array_equal(leaf, row[place].astype(dtype)) for leaf, row in zip(of_job, marks, strict=True))
        leaves.append(place if is_marked else _constant(of_job))
    if sorted(leaf.start for leaf in leaves if isinstance(leaf, slice)) != list(range(0, count, size)):
        # Not every number of the body is in exactly one leaf.
        return None
    row = dtypes.of(dtype)

    def frame(*common: *Common) -> Frame:
        return ListFrame(*common, text, shapes, tuple(leaves), row.low, row.high)

    return _Reading(jobs, frame)


def _ranges(reader: Reader, body: bytes, evaluation: Evaluation[Any]) -> _Reading | None:
    """Return the readings of a body that has its tensors in ranges of bytes, ``None`` for any other body."""
    places = sorted({place for leaf in _tensors(evaluation) for place in bodies.find_ranges(body, leaf)})
    around = bodies.without(body, places)
    overlaps = any(one.stop > other.start for one, other in pairwise(places))
    if not places or overlaps or sum(map(len, around)) > MAX_TEXT:
        return None
    dtype, numbers = evaluation.leaves[0].dtype, range(len(places))
    marks = [[_marks(evaluation.size, number, sign).astype(dtype) for number in numbers] for sign in SIGNS]
    jobs = [reader.read(bodies.fill(body, places, tensors)) for tensors in marks]
    leaves = list[int | Array]()
    for of_job in _leaves(jobs, evaluation):
        number = int(of_job[0][0]) // APART
        is_marked = number in numbers and all(
            np.array_equal(leaf, tensors[number]) for leaf, tensors in zip(of_job, marks, strict=True)
        )
        leaves.append(number if is_marked else _constant(of_job))
    if sorted(leaf for leaf in leaves if isinstance(leaf, int)) != list(numbers):
        # Not every tensor of the body is exactly one leaf.
        return None

    def frame(*common: *Common) -> Frame:
        return RangeFrame(*common, tuple(leaves), tuple(places), around)

    return _Reading(jobs, frame)


def _marks(size: int, number: int, sign: int) -> NDArray[np.float64]:
    """Return marks for the tensor with this number: they differ from those of all others."""
    return sign * (np.arange(size, dtype=np.float64) + (APART * number + RAGGED))


def _lists_of(row: NDArray[np.float64], shapes: Sequence[Shape]) -> list[bytes]:
    """Return a row of marks as the texts of lists of these shapes."""
    return edges.nested(orjson.dumps(row.tolist())[1:-1].split(b","), shapes)


def _leaves(jobs: Sequence[Job], evaluation: Evaluation[Any]) -> Iterator[tuple[Array, ...]]:
    """Yield each leaf of the evaluations of the jobs, flat."""
    yield from zip(*(_leaves_in(job, evaluation) for job in jobs), strict=True)


def _leaves_of(reader: Reader, evaluation: Evaluation[Any], body: bytes) -> list[Array]:
    return _leaves_in(reader.read(body), evaluation)


def _leaves_in(job: Job, evaluation: Evaluation[Any]) -> list[Array]:
    """Return the leaves of the evaluation of a job, flat; in all but these it must be like this evaluation."""
    other = _evaluation(job)
    if other.batch_key != evaluation.batch_key or other.size != evaluation.size:
        raise Unteachable
    return [leaf.reshape(-1) for leaf in _tensors(other)]


def _constant(leaves: Sequence[Array]) -> Array:
    """Return a leaf that does not depend on the body."""
    first, *others = leaves
    if any(first.tobytes() != other.tobytes() for other in others):
        raise Unteachable
    return first.copy()


def _evaluation(job: Job) -> Evaluation[Any]:
    """Return the evaluation of a job if requests may share its call, and if all numbers are valid for its op."""
    work = job.work
    if not isinstance(work, Evaluation):
        raise Unteachable
    op = work.point.op
    if op.batching != "elementwise" or op.validate is not None:
        raise Unteachable(is_lasting=True)
    if job.is_long or work.batch_key is None:
        raise Unteachable
    kinds = {(leaf.dtype, leaf.size) for leaf in _tensors(work)}
    if len(kinds) != 1 or next(iter(kinds))[0] not in DTYPES:
        raise Unteachable
    return work


def _tensors(evaluation: Evaluation[Any]) -> list[Array]:
    """Return the leaves of an evaluation without the number attributes."""
    first, count = len(evaluation.program.op.inputs), len(evaluation.point.spec.numbers)
    return [*evaluation.leaves[:first], *evaluation.leaves[first + count :]]


def _results(evaluation: Evaluation[Any]) -> KeyedArrays:
    spec = evaluation.point.spec
    [results] = padding.run(evaluation.program, spec.mode, [evaluation.leaves], spec.device)
    arrays = [array for array in results.values() if array is not None]
    if len(arrays) > MAX_RESULTS or any(array.dtype not in DTYPES for array in arrays):
        raise Unteachable
    return results


def _marked_response(
    job: Job, results: KeyedArrays, sign: int
) -> tuple[tuple[bytes, ...], tuple[Hole, ...], Sequence[Header]]:
    """Return the response of a job to marked results: its texts around them, the place of each, and its headers."""
    marked: KeyedArrays = dict(results)
    for number, (key, array) in enumerate(results.items(), 1):
        if array is not None:
            marked[key] = _marks(array.size, number, sign).astype(array.dtype).reshape(array.shape)
    reply = job.write(_evaluation(job).finish(marked))
    body = b"".join(reply.pieces)
    found = list[tuple[int, int, Hole]]()
    for key, array in marked.items():
        if array is None:
            continue
        for form, dtype, text in _texts(array):
            if count := body.count(text):
                if count > 1:
                    raise Unteachable
                found.append((at := body.index(text), at + len(text), Hole(key, form, array.shape, dtype)))
                break
    found.sort(key=lambda each: each[:2])
    places = [Range(start, stop, is_base64=False) for start, stop, _ in found]
    return bodies.without(body, places), tuple(hole for *_, hole in found), reply.headers


def _texts(array: Array) -> Iterator[tuple[Form, np.dtype[Any], bytes]]:
    """Yield an array in every form, and every dtype, in which a response may have it."""
    for dtype in dict.fromkeys((array.dtype, np.dtype(np.float64))):
        numbers = array.astype(dtype, copy=False)
        yield "list", dtype, orjson.dumps(numbers.reshape(-1), option=NUMPY)[1:-1]
        yield "nested", dtype, orjson.dumps(numbers if numbers.ndim else numbers[()], option=NUMPY)
    yield "base64", array.dtype, pybase64.b64encode(array.tobytes())
    yield "bytes", array.dtype, array.tobytes()


def _written(response: Response, results: KeyedArrays) -> bytes | None:
    """Return the body of a response for these results, ``None`` if the ordinary way must write it."""
    return response.body([write(present(results[hole.key]).reshape(1, -1), hole)[0] for hole in response.holes])


def _writes_alike(job: Job, results: KeyedArrays, response: Response) -> bool:
    """Return whether a response has the bytes that the job writes, for all results at the edges, or none."""
    for others in edges.results_at_edges(results):
        body = _written(response, others)
        if body is not None and body != b"".join(job.write(_evaluation(job).finish(others)).pieces):
            return False
    return True
