"""Calls on the scheduler's thread: those that are short, but not brief, or not known to end soon.

Requests that arrive while such a call runs gather, and share the next one.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from app.errors import Overloaded
from app.execution.engine import Engine
from app.fast_path.parts import Group, Part, part_of
from app.fast_path.pending import PendingRequest
from app.runtime.cancellation import Checkpoint
from app.runtime.traces import NotTraced

logger = logging.getLogger("pullback")

# A turn of the scheduler ends after this time, or this many calls; further calls wait for the next turn.
TURN_S, CALLS = 2e-3, 32


@dataclass(eq=False)
class _Turn:
    """The calls of one turn of the scheduler; ``done`` of them have run, ``failed`` are those that raised."""

    parts: list[Part]
    done: int = 0
    failed: list[Part] = field(default_factory=list[Part])
    task: asyncio.Future[None] | None = None

    def work(self, checkpoint: Checkpoint) -> None:
        """Run the calls, at least one, while there is time; raises ``NotTraced``, and what ``checkpoint`` raises."""
        until = time.perf_counter() + TURN_S
        while self.done < len(self.parts):
            checkpoint()
            part = self.parts[self.done]
            if not all(request.is_done for request in part.requests):
                try:
                    part.run()
                except NotTraced:
                    raise
                except BaseException:  # noqa: BLE001 - the general path reports the error
                    self.failed.append(part)
            self.done += 1
            if time.perf_counter() > until:
                return

    def on_release(self) -> None:
        """Cancel the turn if no request waits for it."""
        if self.task is not None and all(request.is_done for part in self.parts for request in part.requests):
            self.task.cancel()


class ThreadedCalls:
    """The requests whose calls run, or wait, on the scheduler's thread; everything but ``_Turn.work`` is on the loop.

    ``send`` sends the responses of a part, and ``leave`` leaves requests to the general path.
    """

    def __init__(
        self, engine: Engine, send: Callable[[Part], None], leave: Callable[[Iterable[PendingRequest]], None]
    ) -> None:
        """Start with none."""
        self._scheduler, self._batches, self._deadline_s = engine.scheduler, engine.batches, engine.deadline_s
        self._send, self._leave = send, leave
        self._waiting = dict[Group, deque[PendingRequest]]()
        self._tasks = set[asyncio.Task[None]]()  # the loop keeps only weak references

    def put(self, group: Group, requests: Iterable[PendingRequest]) -> None:
        """Let requests wait for the next call of their group.

        Those beyond the limit take the general path, and so do those with a shorter deadline, which would end the call.
        """
        waiting = self._waiting.get(group)
        is_new = waiting is None
        if waiting is None:
            waiting = self._waiting[group] = deque()
        for request in requests:
            if request.allowed_s < self._deadline_s:
                self._leave([request])
                continue
            try:
                self._batches.enter(group.owner)
            except Overloaded:
                self._leave([request])
            else:
                waiting.append(request)
        if is_new:
            task = asyncio.get_running_loop().create_task(self._serve(group, waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, group: Group, waiting: deque[PendingRequest]) -> None:
        """Run calls until no request of the group waits."""
        try:
            while waiting:
                await self._take_turn(group, waiting)
        except Exception:
            logger.exception("the fast path failed, and leaves its requests to the general path")
        finally:
            del self._waiting[group]
            self._end(group, waiting)

    async def _take_turn(self, group: Group, waiting: deque[PendingRequest]) -> None:
        turn, latest = _Turn(_parts(group, waiting)), self._deadline_s
        taken = [request for part in turn.parts for request in part.requests]
        now = time.perf_counter()
        for request in taken:
            request.on_release = turn.on_release
            latest = min(latest, self._deadline_s - (now - request.began))
        run = self._scheduler.run(turn.work, queue="short", deadline=time.monotonic() + latest, owner=group.owner)
        turn.task = asyncio.ensure_future(run)
        try:
            await asyncio.wait([turn.task])
            # The general path reports errors, such as a full queue or a passed deadline.
            is_whole = not turn.task.cancelled() and turn.task.exception() is None
            rest = turn.parts[turn.done :]
            if is_whole:
                waiting.extendleft(request for part in reversed(rest) for request in reversed([*part.requests]))
                taken = [request for part in turn.parts[: turn.done] for request in part.requests]
            for part in turn.parts[: turn.done]:
                if part.ended and part not in turn.failed:
                    self._batches.note(group.call.packing, part.count, part.computed - part.began)
                    self._send(part)
        finally:
            self._end(group, taken)

    def _end(self, group: Group, requests: Iterable[PendingRequest]) -> None:
        """Give back the places of requests, and leave those without a response to the general path."""
        for request in requests:
            self._batches.leave(group.owner)
            request.on_release = None
            if not request.is_done:
                request.template.counters.gave_up(request.arrived)
                self._leave([request])


def _parts(group: Group, waiting: deque[PendingRequest]) -> list[Part]:
    """Take requests for one turn: those of one call, or one call for each where they cannot share any."""
    most = group.call.packing.most
    parts: list[Part] = []
    while waiting and len(parts) < (CALLS if most == 1 else 1):
        count = 0
        taken: list[PendingRequest] = []
        while waiting and count + waiting[0].template.size <= most:
            request = waiting.popleft()
            taken.append(request)
            count += request.template.size
        parts.append(part_of(group.call, taken))
    return parts
