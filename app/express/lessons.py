"""Lessons: how the express way learns a frame, by asking the ordinary way what it does with marked numbers.

The ordinary way has answered a request. Its reader then reads the body twice more, with marks in place of the numbers:
that shows which number of the body is which element of which leaf. Its writer writes marked results: that shows where
each result is in the response. The marks differ in every position, and in their signs from one reading to the next.

Marks show places, not what a reader or a writer does with every number. So the finished frame is compared with both on
the numbers of ``edges``. If anything differs, or if the frame would have answered the request with other bytes, the
express way learns nothing.

A lesson runs on a thread of its own, because it takes as long as several requests.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from app.autodiff import padding
from app.autodiff.evaluation import Evaluation
from app.express import bodies, edges
from app.express.bodies import Shape
from app.express.calls import Call
from app.express.frames import MAX_TEXT, Frame, ListFrame, RangeFrame, Response
from app.express.marks import APART, SIGNS, marks
from app.express.responses import Writer, read_response
from app.http.deadlines import Deadline
from app.http.request import Request
from app.requests.answering import Job, Reader
from app.runtime.modes import KeyedArrays
from app.telemetry.counters import Counters
from app.tensors import dtypes
from ops import Array

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
# The most results of a program.
MAX_RESULTS = 8
Common: TypeAlias = tuple[Call, int, Response, Counters, Counters]
"""The fields of ``Frame``."""


class Unteachable(Exception):
    """The request has no frame. ``is_lasting``: neither has any other request for this op."""

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
        if self.reader is None or self.deadline is None or self.deadline.allowed_s < allowed_s:
            raise Unteachable
        job = self.reader.read(self.body)
        evaluation = _evaluation(job)
        call = call_of(evaluation)
        reading = _lists(self.reader, self.body, evaluation) or _ranges(self.reader, self.body, evaluation)
        if reading is None:
            raise Unteachable
        response = read_response(b"".join(self.sent), [_writer(each) for each in reading.jobs], _results(evaluation))
        if response is None:
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
    rows = [marks(count, 0, sign) for sign in SIGNS]
    jobs = [reader.read(bodies.join(text, _lists_of(row, shapes))) for row in rows]
    leaves = list[slice | Array]()
    for of_job in _leaves(jobs, evaluation):
        place = slice(start := int(of_job[0][0]), start + size)
        is_marked = all(np.array_equal(leaf, row[place].astype(dtype)) for leaf, row in zip(of_job, rows, strict=True))
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
    marked = [[marks(evaluation.size, number, sign).astype(dtype) for number in numbers] for sign in SIGNS]
    jobs = [reader.read(bodies.fill(body, places, tensors)) for tensors in marked]
    leaves = list[int | Array]()
    for of_job in _leaves(jobs, evaluation):
        number = int(of_job[0][0]) // APART
        is_marked = number in numbers and all(
            np.array_equal(leaf, tensors[number]) for leaf, tensors in zip(of_job, marked, strict=True)
        )
        leaves.append(number if is_marked else _constant(of_job))
    if sorted(leaf for leaf in leaves if isinstance(leaf, int)) != list(numbers):
        # Not every tensor of the body is exactly one leaf.
        return None

    def frame(*common: *Common) -> Frame:
        return RangeFrame(*common, tuple(leaves), tuple(places), around)

    return _Reading(jobs, frame)


def _lists_of(row: NDArray[np.float64], shapes: Sequence[Shape]) -> list[bytes]:
    """Return a row of marks as the texts of lists of these shapes."""
    return bodies.nested(orjson.dumps(row.tolist())[1:-1].split(b","), shapes)


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


def _writer(job: Job) -> Writer:
    return lambda results: job.write(_evaluation(job).finish(results))


def _results(evaluation: Evaluation[Any]) -> KeyedArrays:
    spec = evaluation.point.spec
    [results] = padding.run(evaluation.program, spec.mode, [evaluation.leaves], spec.device)
    arrays = [array for array in results.values() if array is not None]
    if len(arrays) > MAX_RESULTS or any(array.dtype not in DTYPES for array in arrays):
        raise Unteachable
    return results
