"""From the body of a request to its response: read, compute and write, each where it blocks no other request.

The caller, which is the native API or another protocol, reads the body and writes the response.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from app.autodiff.evaluation import Evaluation
from app.errors import DeadlinePassed
from app.execution.engine import Engine
from app.execution.lane import Slot
from app.http.problems import Header
from app.http.request import Request
from app.requests.operations import Steps, Work
from app.runtime.cancellation import Checkpoint
from app.runtime.traces import NotTraced
from app.telemetry.counters import Counters
from app.tensors.strict_json import Body

Result = TypeVar("Result")

# Above this size, reading and writing tensors would block the event loop for milliseconds, and the work is long.
SMALL_BODY = 1 << 16
# A response is sent in pieces of at most this size.
PIECE = 1 << 18
# The time that work leaves for writing its answer, if a part of the work is worth an answer: a share of the time left.
SHARE_OF_ANSWER, LONGEST_ANSWER_S = 0.25, 1.0


class Reply(NamedTuple):
    """The body of a response in one or several pieces, its size in bytes, its media type, and additional headers."""

    media_type: str
    pieces: Sequence[Body]
    size: int
    headers: tuple[Header, ...] = ()

    def cut(self, limit: int) -> Iterator[bytes]:
        """Yield the body in pieces of at most ``limit`` bytes."""
        for piece in self.pieces:
            view = memoryview(piece)
            for start in range(0, len(view), limit):
                yield bytes(view[start : start + limit])


@dataclass(frozen=True)
class Turns:
    """A gradient check, in several turns of the lane, between which other checks run; ``result`` follows the last.

    The turns are made as they are needed: one may depend on those before it. If the time ends before the last turn, the
    result is that of the turns up to then; ``has_begun`` reports whether any has begun, without which there is no
    result.
    """

    turns: Iterable[Steps]
    result: Callable[[], Any]
    has_begun: Callable[[], bool]


@dataclass(slots=True)
class Job:
    """The work of a request, and the function that writes its result.

    ``owner`` is the op whose share of the queue the work takes.
    """

    owner: str
    work: Work | Turns
    is_long: bool
    write: Callable[[Any], Reply]
    counters: Counters


@dataclass(slots=True)
class Reader:
    """The function that reads a body into a job, and the owner and the counters for the time of reading.

    ``is_binary``: the tensors of the body and of the response are used in place, so reading and writing takes no time.
    """

    read: Callable[[Body], Job]
    owner: str
    counters: Counters
    is_binary: bool = False


async def answer(engine: Engine, request: Request, reader: Reader, body: Body) -> None:
    """Answer a request; raises the ``PullbackError`` for a request that is invalid, or cannot be answered."""
    if request.lesson is not None:
        request.lesson.note(request, reader)
    is_large = len(body) > SMALL_BODY
    if is_large and reader.is_binary:
        await send_reply(await _answer_on_lane(engine, request, reader, body), request)
        return
    timed = reader.counters.timed
    job = await asyncio.to_thread(timed, "parse", reader.read, body) if is_large else timed("parse", reader.read, body)
    slot: Slot = "long" if is_large or job.is_long else "short"
    result = await _run(engine, request, job, slot)
    timed = job.counters.timed
    if slot == "long":
        reply = await asyncio.to_thread(timed, "serialise", job.write, result)
    else:
        reply = timed("serialise", job.write, result)
    await send_reply(reply, request)


def owner_of(request: Request, op: str) -> str:
    """Return the owner of the work of a request: the op, for each key apart, so that no key starves another."""
    return f"{op} (key {request.key})" if request.key else op


async def off_loop(read: Callable[[Body], Result], body: Body) -> Result:
    """Return ``read(body)``, run on another thread if the body is large."""
    return await asyncio.to_thread(read, body) if len(body) > SMALL_BODY else read(body)


async def send_reply(reply: Reply, request: Request) -> None:
    """Send a response; a large one in pieces, so that a slow client holds little memory.

    Raises ``Overloaded`` when the budget has no room for a large response.
    """
    if reply.size > PIECE:
        request.hold(reply.size)
    request.deadline.start_send()
    headers = [
        (b"content-type", reply.media_type.encode()),
        (b"content-length", b"%d" % reply.size),
        *reply.headers,
    ]
    if reply.size <= PIECE:
        await request.respond(200, headers, b"".join(reply.pieces))
        return
    await request.send({"type": "http.response.start", "status": 200, "headers": headers})
    if request.zero_copy:
        with request.zero_copy.cut_off():
            # The pieces are sent without a copy: the request keeps them until the client has read them.
            for piece in reply.pieces:
                await request.send({"type": "http.response.body", "body": piece, "more_body": True})
            await request.zero_copy.flush()
        await request.send({"type": "http.response.body"})
        return
    left = reply.size
    for piece in reply.cut(PIECE):
        left -= len(piece)
        await request.send({"type": "http.response.body", "body": piece, "more_body": left > 0})


async def _run(engine: Engine, request: Request, job: Job, slot: Slot) -> Any:
    """Return the result of a job; from now on the request is counted by the counters of the job."""
    request.counters = counters = job.counters
    # Reading the body may have shortened the deadline.
    work, deadline, owner = job.work, request.deadline.at, owner_of(request, job.owner)
    if isinstance(work, Evaluation):
        if slot == "short" and request.is_alone and engine.batches.runs_inline(work):
            with suppress(NotTraced):
                return engine.batches.run_at_once(work, counters)
        return await engine.batches.run(work, slot=slot, deadline=deadline, owner=owner, counters=counters)
    if isinstance(work, Turns):
        until = with_time_to_answer(deadline)
        async with engine.checks.place():
            try:
                for turn in work.turns:
                    await engine.lane.run(counters.queued(turn), slot="check", deadline=until, owner=owner)
            except DeadlinePassed:
                if not work.has_begun():
                    raise
        return work.result()
    return await engine.lane.run(counters.queued(work), slot=slot, deadline=deadline, owner=owner)


def with_time_to_answer(deadline: float) -> float:
    """Return when work must end so that its result, however incomplete, can be sent before ``deadline``."""
    return deadline - min(LONGEST_ANSWER_S, SHARE_OF_ANSWER * max(0.0, deadline - time.monotonic()))


async def _answer_on_lane(engine: Engine, request: Request, reader: Reader, body: Body) -> Reply:
    """Read, compute and write in one turn of the lane: with tensors used in place, changing threads would cost more."""
    end_wait = reader.counters.waiting()

    def work(checkpoint: Checkpoint) -> Reply:
        end_wait()
        job = reader.counters.timed("parse", reader.read, body)
        work, computed = job.work, job.counters.computed
        assert not isinstance(work, Turns)  # no binary request has turns
        result = computed(work.run) if isinstance(work, Evaluation) else computed(work, checkpoint)
        return job.counters.timed("serialise", job.write, result)

    owner = owner_of(request, reader.owner)
    return await engine.lane.run(work, slot="long", deadline=request.deadline.at, owner=owner)
