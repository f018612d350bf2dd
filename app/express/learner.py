"""The learner: when lessons are given, on which thread, and what becomes of their frames."""

import asyncio
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, get_args
from weakref import WeakValueDictionary

from app.autodiff.evaluation import Evaluation
from app.execution.engine import Engine
from app.express.allowance import Allowance
from app.express.calls import Call
from app.express.frames import Frame
from app.express.heads import Head
from app.express.lessons import Lesson, NotBrief, Unteachable
from app.express.memory import FAILURES, Memory
from app.runtime.modes import is_known_arithmetic
from app.runtime.traces import NotTraced, forbid_tracing
from ops import Mode

# How often a call is tried before it counts as not brief.
TRIALS = 3


class Learner:
    """Gives the lessons of a process, one at a time."""

    def __init__(self, engine: Engine, memory: Memory) -> None:
        """Keep the frames in ``memory``."""
        self._batches, self._deadline_s, self._memory = engine.batches, engine.deadline_s, memory
        self._calls = WeakValueDictionary[Hashable, Call]()
        self._lesson: asyncio.Task[None] | None = None
        self._trial: asyncio.Task[None] | None = None
        self._allowance = Allowance()
        # On this thread, as on the event loop, a trace that is missing is not made.
        leave = partial(forbid_tracing, get_args(Mode))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lessons", initializer=leave)

    def learn(self, lesson: Lesson) -> None:
        """Learn the frame of a request that the ordinary way has answered, unless another lesson is in progress."""
        is_busy = self._lesson is not None and not self._lesson.done()
        if is_busy or not lesson.has_succeeded or not self._allowance.is_left:
            # The next one may succeed.
            self._memory.defer(lesson.likeness)
        elif (head := self._memory.find(lesson.head)) is not None:
            self._lesson = asyncio.get_running_loop().create_task(self._learn(lesson, head))

    async def _learn(self, lesson: Lesson, head: Head) -> None:
        try:
            frame = await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, lesson)
        except NotTraced:
            self._memory.defer(lesson.likeness)
        except NotBrief as reason:
            if self._trial is None or self._trial.done():
                self._trial = asyncio.get_running_loop().create_task(self._try(reason.evaluation))
            if reason.is_measured:
                head.failures += 1
            else:
                self._memory.defer(lesson.likeness)
        except Unteachable as reason:
            # The heads of UM-Bridge, whose requests name their op in the body, serve other ops too.
            is_of_one_op = lesson.reader is not None and lesson.reader.owner != ""
            head.failures = FAILURES if reason.is_lasting and is_of_one_op else head.failures + 1
        except Exception:  # noqa: BLE001 - the ordinary way has answered, and will answer the next one
            head.failures += 1
        else:
            head.failures = 0
            if self._memory.find(lesson.head) is head:
                self._memory.learn(head, lesson.body, frame)

    def _timed(self, lesson: Lesson) -> Frame:
        """Return the frame of a lesson, and spend the time that it takes."""
        began = time.thread_time()
        try:
            return lesson.learn(self._deadline_s, self._call)
        finally:
            self._allowance.spend(time.thread_time() - began)

    def _call(self, evaluation: Evaluation[Any]) -> Call:
        """Return the call of an evaluation, the same for all that may share one; raises ``NotBrief``."""
        runs_inline = self._batches.runs_inline_together(evaluation.program, evaluation.point.spec, evaluation.size)
        if not runs_inline:
            raise NotBrief(evaluation, is_measured=runs_inline is not None)
        call = self._calls.get(evaluation.batch_key)
        if call is None:
            call = Call(evaluation.program, evaluation.point.spec, evaluation.leaves[0].dtype)
            self._calls[evaluation.batch_key] = call
        return call

    async def _try(self, evaluation: Evaluation[Any]) -> None:
        """Run an evaluation, so that it becomes known whether it is brief: under load it may never run by itself.

        A busy machine may interrupt a run, so it gets several. Errors are for the ordinary way.
        """
        program, spec = evaluation.program, evaluation.point.spec
        with suppress(Exception):
            for _ in range(TRIALS):
                await self._batches.warm(evaluation, deadline=time.monotonic() + self._deadline_s)
                runs_inline = self._batches.runs_inline_together(program, spec, evaluation.size)
                if runs_inline or not is_known_arithmetic(program, spec.mode):
                    return
