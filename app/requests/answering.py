"""From the body of a request to its response: read, compute and write, each where it blocks no other request.

The caller, which is the native API or another protocol, reads the body and writes the response.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from app.autodiff.evaluation import Evaluation, compute
from app.errors import Malformed
from app.execution.calls import Call, CheckRun, Portioned
from app.execution.engine import Engine
from app.execution.verdicts import REQUIRED
from app.http.problems import Header
from app.http.request import Request
from app.requests.brief import NotBrief
from app.runtime.cancellation import Checkpoint
from app.telemetry.accounts import Owner
from app.telemetry.counters import Counters
from app.tensors.layouts import Layout
from app.tensors.strict_json import Body
from ops import Array

Result = TypeVar("Result")

# Above this size, reading and writing tensors would block the event loop for milliseconds, and the work is long.
SMALL_BODY = 1 << 16
# The same for writing, in bytes of tensors.
SMALL_RESULT = 1 << 15
# Which verdict on the op a request requires.
REQUIRE = b"require-verdict"
# A response is sent in pieces of at most this size.
PIECE = 1 << 18


class Reply(NamedTuple):
    """The body of a response in one or several pieces of bytes, its media type, and additional headers.

    ``layout`` is that of the pieces, if they have one. ``is_for_finite``: the layout is only for finite results.
    ``status`` is that of the response.
    """

    media_type: str
    pieces: Sequence[Body]
    headers: tuple[Header, ...] = ()
    layout: Layout | None = None
    is_for_finite: bool = False
    status: int = 200


@dataclass(slots=True)
class Exchange:
    """A request that has been answered, for the fast path: its body, what was computed, and the response.

    ``target`` is the path, for the log, and ``route`` its template. ``counters`` are those for the time of reading.
    """

    target: str
    route: str
    counters: Counters
    body: Body
    call: Call
    computed: Any
    reply: Reply


async def answer(
    engine: Engine, request: Request, read: Callable[[Body], Call], body: Body, op: str, *, is_binary: bool = False
) -> None:
    """Answer a request: ``read`` its body into a call, run the call, and write and send the result.

    ``op`` is the op whose work it is, if the path names one, otherwise empty. With ``is_binary``, the tensors of the
    body and of the response are used in place, so that reading and writing take no time. Raises the ``PullbackError``
    for a request that is invalid, or cannot be answered, and for an op without the verdict that is required.
    """
    counters, is_large, needs_verdict = request.counters, len(body) > SMALL_BODY, _needs_verdict(engine, request)
    context = request.deadline.at, request.key
    computed, reply = None, None
    if is_large and is_binary and not needs_verdict:
        whole = partial(_answer_on_scheduler, engine, request, read, body, op)
        call, computed, reply = await engine.with_all(whole, *context)
    else:
        attempt = partial(_read, engine, request, read, body, op)
        call = await engine.with_all(attempt, *context)
        # From now on the request is counted by the counters of the call.
        request.counters = call.counters
        if needs_verdict and call.relies_on is not None:
            await engine.verdicts.need(call.relies_on)
    if reply is None:
        # Reading the body may have shortened the deadline.
        call.key, call.deadline, call.account = request.key, request.deadline.at, request.account
        call.is_large, call.is_alone = is_large, len(request.link.tasks) == 1
        computed = await engine.run(call)
        is_slow = is_large or call.is_long or _size(computed) > SMALL_RESULT
        write = partial(_written, call, computed)
        reply = await _in_turn(engine, request, write, call.owner) if is_slow else write()
    await send_reply(reply, request)
    # The fast path would look for no verdict.
    if request.candidate is not None and not needs_verdict:
        request.candidate.exchange = Exchange(request.target, request.route, counters, body, call, computed, reply)


def _needs_verdict(engine: Engine, request: Request) -> bool:
    """Return whether a request, or the operator, requires a verdict; raises ``Malformed`` for an unknown one."""
    if (wanted := request.headers.get(REQUIRE)) is not None and wanted.lower() != REQUIRED.encode():
        raise Malformed(f"Require-Verdict: expected {REQUIRED}, got {wanted.decode('latin-1')!r}")
    return wanted is not None or engine.verdicts.are_required


async def _in_turn(engine: Engine, request: Request, work: Callable[[], Result], owner: Owner) -> Result:
    """Return ``work()``, which reads or writes large JSON: one at a time, because the parser holds the interpreter."""
    return await engine.scheduler.run(
        lambda checkpoint: work(), queue="json", deadline=request.deadline.at, owner=owner
    )


async def _read(engine: Engine, request: Request, read: Callable[[Body], Call], body: Body, op: str) -> Call:
    """Read a body: on the event loop if that is known to be brief."""
    timed = request.counters.timed
    if len(body) > SMALL_BODY:
        return await _in_turn(engine, request, lambda: timed("parse", read, body), Owner(op, request.key))
    try:
        return timed("parse", read, body)
    except NotBrief as error:
        owner = Owner(error.op, request.key)

    def work(checkpoint: Checkpoint) -> Call:
        del checkpoint
        return timed("parse", read, body)

    return await engine.scheduler.run(work, queue="short", deadline=request.deadline.at, owner=owner)


async def _answer_on_scheduler(
    engine: Engine, request: Request, read: Callable[[Body], Call], body: Body, op: str
) -> tuple[Call, Any, Reply | None]:
    """Read, compute and write in one turn of the scheduler: with tensors used in place, changing threads costs more.

    Work in portions is only read, and the reply is ``None``.
    """
    counters, queued, has_begun = request.counters, time.perf_counter(), False

    def work(checkpoint: Checkpoint) -> tuple[Call, Any, Reply | None]:
        nonlocal has_begun
        has_begun = True
        counters.spent("queue", queued, time.perf_counter(), request.account)
        call = counters.timed("parse", read, body)
        work, computed = call.work, partial(call.counters.computed, account=request.account)
        assert not isinstance(work, CheckRun)  # no binary request is a check
        if isinstance(work, Portioned):
            return call, None, None
        results = computed(compute, [work])[0] if isinstance(work, Evaluation) else computed(work, checkpoint)
        return call, results, _written(call, results)

    owner = Owner(op, request.key)
    try:
        return await engine.scheduler.run(work, queue="long", deadline=request.deadline.at, owner=owner)
    finally:
        if not has_begun:
            counters.spent("queue", queued, time.perf_counter(), request.account)


def _size(computed: Any) -> int:
    """Return the bytes of the tensors that an evaluation has computed, 0 for other results."""
    tensors = cast("dict[Any, Array | None]", computed).values() if isinstance(computed, dict) else ()
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, np.ndarray))


def _written(call: Call, computed: Any) -> Reply:
    """Return the response to what the engine has computed."""
    began = time.perf_counter()
    try:
        return call.write(computed)
    finally:
        call.counters.spent("serialise", began, time.perf_counter())


async def send_reply(reply: Reply, request: Request) -> None:
    """Send a response; a large one in pieces, so that a slow client holds little memory.

    Raises ``Overloaded`` when the budget has no room for a large response.
    """
    size = sum(map(len, reply.pieces))
    if size > PIECE:
        request.hold(size)
    request.deadline.start_send(request.taken)
    headers = [(b"content-type", reply.media_type.encode()), (b"content-length", b"%d" % size), *reply.headers]
    await request.send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if size <= PIECE:
        await request.send({"type": "http.response.body", "body": b"".join(reply.pieces)})
    elif request.zero_copy:
        with request.zero_copy.cut_off():
            # The pieces are sent without a copy: the request keeps them until the client has read them.
            for piece in reply.pieces:
                await request.send({"type": "http.response.body", "body": piece, "more_body": True})
            await request.zero_copy.flush()
        await request.send({"type": "http.response.body"})
    else:
        left = size
        for view in map(memoryview, reply.pieces):
            for start in range(0, len(view), PIECE):
                piece = bytes(view[start : start + PIECE])
                left -= len(piece)
                await request.send({"type": "http.response.body", "body": piece, "more_body": left > 0})
