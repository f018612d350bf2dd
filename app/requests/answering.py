"""From the body of a request to its answer: read, computed and written, each where it holds up nobody else.

What a body says, and how an answer is written, is the affair of whoever asks (the native API, or another protocol).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from starlette.types import Receive, Scope, Send

from app.autodiff.evaluation import Evaluation
from app.execution.engine import Engine
from app.execution.lane import Checkpoint, Slot
from app.http.body import read_body, read_into
from app.http.connection import is_alone
from app.http.limits import charge, clock_of
from app.http.zero_copy import ZeroCopyBody, straight_of
from app.requests.operations import Work
from app.requests.plans import Task
from app.telemetry.counters import TALLY, Counters
from app.tensors.memory import aligned
from app.tensors.strict_json import Body

# Beyond it, reading and writing tensors would hold the event loop for milliseconds, and the work is long.
SMALL_BODY = 1 << 16
# An answer goes out in pieces of so many bytes.
PIECE = 1 << 18

Header = tuple[bytes, bytes]


class Reply(NamedTuple):
    """The bytes of an answer, in one piece or in several, how many they are, what, and what else the head says."""

    media_type: str
    pieces: Sequence[Body]
    size: int
    headers: tuple[Header, ...] = ()

    def cut(self, limit: int) -> Iterator[bytes]:
        """Yield them in pieces of at most ``limit`` bytes; where all of them fit into one, they are one."""
        for piece in self.pieces if self.size > limit else [b"".join(self.pieces)]:
            view = memoryview(piece)
            for start in range(0, len(view), limit):
                yield bytes(view[start : start + limit])


class Question(NamedTuple):
    """What a request asks for, when its body has been read: of which op, the work, and how to write what is found."""

    op: str
    task: Task
    write: Callable[[Any], Reply]
    counters: Counters


class Reader(NamedTuple):
    """How a body becomes a question; ``op`` and ``counters`` are those of the reading.

    ``is_binary``: tensors lie in the body, and in the answer, as they are wanted, so that to read and to write them
    takes no time.
    """

    read: Callable[[Body], Question]
    op: str
    counters: Counters
    is_binary: bool = False


async def body_of(scope: Scope, receive: Receive, *, is_binary: bool = False, lead: int = 0) -> Body:
    """Return the whole body; from now on a client that leaves ends the request.

    What is large, or ``is_binary``, goes into memory that is there before it comes: tensors that begin after ``lead``
    bytes are aligned. Raises what ``read_body`` and ``read_into`` do.
    """
    size, straight = int(dict(scope["headers"]).get(b"content-length", b"0")), straight_of(scope)
    if is_binary and size:
        body = aligned(size, lead).data
    elif straight:
        body = bytearray(size)
    else:
        whole = await read_body(receive)
        clock_of(scope).working()
        return whole
    await read_into(memoryview(body), receive, straight)
    clock_of(scope).working()
    return body


async def answer(engine: Engine, reader: Reader, body: Body, scope: Scope, send: Send) -> None:
    """Answer a request; raises every ``PullbackError`` of one that is wrong, or cannot be answered."""
    await send_reply(await _computed(engine, reader, body, scope), scope, send)


async def send_reply(reply: Reply, scope: Scope, send: Send) -> None:
    """Send an answer, in pieces, each when the client has taken those before: one that reads nothing holds little.

    Raises ``Overloaded`` when there is no room for it.
    """
    if reply.size > PIECE:
        charge(scope, reply.size)
    clock_of(scope).sending()
    await _send(reply, send, straight_of(scope))


async def _send(reply: Reply, send: Send, straight: ZeroCopyBody | None) -> None:
    headers = [
        (b"content-type", reply.media_type.encode()),
        (b"content-length", b"%d" % reply.size),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if straight and reply.size > PIECE:
        await _send_straight(reply, send, straight)
        return
    left = reply.size
    for piece in reply.cut(PIECE):
        left -= len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": left > 0})


async def _computed(engine: Engine, reader: Reader, body: Body, scope: Scope) -> Reply:
    timed, clock = reader.counters.timed, clock_of(scope)
    if len(body) > SMALL_BODY and reader.is_binary:
        return await _at_one_go(engine, reader, body, clock.deadline)
    if len(body) > SMALL_BODY:
        question = await asyncio.to_thread(timed, "parse", reader.read, body)
        slot: Slot = "long"
    else:
        question = timed("parse", reader.read, body)
        slot = "long" if question.task.is_long else "short"
    scope[TALLY] = question.counters
    work = question.task.work
    if slot == "short" and isinstance(work, Evaluation) and is_alone(scope) and engine.batches.is_brief(work):
        found = engine.batches.run_at_once(work, question.counters)
    else:
        # To read the body may have shortened the time.
        found = await _run(engine, question, work, slot, clock.deadline)
    if slot == "long":
        return await asyncio.to_thread(question.counters.timed, "serialise", question.write, found)
    return question.counters.timed("serialise", question.write, found)


async def _at_one_go(engine: Engine, reader: Reader, body: Body, deadline: float) -> Reply:
    """Read, compute and write on the lane: where tensors lie as they are wanted, only changes of threads would cost."""
    ends = reader.counters.waiting()

    def work(checkpoint: Checkpoint) -> Reply:
        ends()
        question = reader.counters.timed("parse", reader.read, body)
        asked, computed = question.task.work, question.counters.computed
        found = computed(asked.run) if isinstance(asked, Evaluation) else computed(asked, checkpoint)
        return question.counters.timed("serialise", question.write, found)

    return await engine.lane.run(work, slot="long", deadline=deadline, owner=reader.op)


async def _run(engine: Engine, question: Question, work: Work, slot: Slot, deadline: float) -> Any:
    counters = question.counters
    if isinstance(work, Evaluation):
        return await engine.batches.run(work, slot=slot, deadline=deadline, counters=counters)
    return await engine.lane.run(counters.queued(work), slot=slot, deadline=deadline, owner=question.op)


async def _send_straight(reply: Reply, send: Send, straight: ZeroCopyBody) -> None:
    """Send the pieces as they lie in memory, which the request holds until the client has taken them."""
    with straight.cut_off():
        for piece in reply.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await straight.taken()
    await send({"type": "http.response.body"})
