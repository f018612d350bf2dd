"""Warm-up: trace and compile the programs that the first requests are likely to need.

It runs in the scheduler's queue for compiling, where no other work waits for it, and measures how long the evaluations
take for the batches. It starts a program only while the scheduler is idle: a service that is busy from the start needs
no warm-up.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.autodiff import derivatives
from app.autodiff.binding import bind
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Point
from app.execution.engine import Engine
from app.runtime import traces
from app.telemetry.accounts import Owner
from app.tensors.dtypes import DTYPES
from app.tensors.json import decode
from ops import Op

log = logging.getLogger("pullback")

# The time that it may take, and its share of the compilations of a process.
SECONDS, SHARE = 30.0, 1 / 4
# How often it checks whether the scheduler is idle, and how long a stop waits for a running compilation.
PAUSE_S, PIECE_S = 0.05, 10.0


@asynccontextmanager
async def warm_up(engine: Engine) -> AsyncGenerator[asyncio.Task[None]]:
    """Inside this block, warm up in the background; yield the task that does.

    At the end, wait for the program that runs: a process that exits while XLA compiles may crash.
    """
    work = _WarmUp(engine)
    task = asyncio.create_task(work.run())
    try:
        yield task
    finally:
        work.ended = True
        await asyncio.wait([task], timeout=PIECE_S)


@dataclass
class _WarmUp:
    """One warm-up: its start, the number of compilations before it, and the op of each program that it ran."""

    engine: Engine
    ended: bool = False
    began: float = field(default_factory=time.monotonic)
    before: int = field(default_factory=lambda: traces.trace_counts()[1])
    done: list[str] = field(default_factory=list[str])

    async def run(self) -> None:
        """Warm up op after op, and log a summary."""
        for op in self.engine.registry.ops.values():
            try:
                await self._warm(op)
            except Exception:
                # Requests for the op return the error.
                log.debug("op %s cannot be warmed up", op.name, exc_info=True)
        if not self.ended and self.engine.check_pool:
            self.engine.check_pool.start()
        if not self.ended:
            seconds = time.monotonic() - self.began
            log.info("warmed up %d programs of %d ops in %.1f s", len(self.done), len(set(self.done)), seconds)

    async def _warm(self, op: Op) -> None:
        """Run the programs of an op that XLA compiles by default, at their smallest size."""
        if op.batching_for(op.attrs()) != "elementwise" or not await self._may_begin():
            return
        device, deadline = self.engine.default_device, time.monotonic() + self.engine.deadline_s
        # This traces the op, usually for the first time.
        mode = await self.engine.scheduler.run(
            lambda checkpoint: self.engine.default_mode(op, None, device),
            queue="compile",
            deadline=deadline,
            owner=Owner(op.name),
        )
        if mode != "xla":
            return
        run = {"device": self.engine.devices[device], "max_elements": self.engine.max_elements}
        example = op.examples[0]
        point = bind(op, example.inputs, example.attrs, None, decode, mode=mode, **run)
        for evaluation in (derivatives.forward(point), _vjp(point)):
            if not await self._may_begin():
                return
            await self.engine.batches.warm(evaluation, deadline=time.monotonic() + self.engine.deadline_s)
            self.done.append(op.name)

    async def _may_begin(self) -> bool:
        """Wait until the scheduler is idle; return whether time and budget are left."""
        while not self.engine.scheduler.is_idle and self._has_time:
            await asyncio.sleep(PAUSE_S)
        return self._has_time and traces.trace_counts()[1] - self.before < SHARE * traces.TRACES.room.most_permanent

    @property
    def _has_time(self) -> bool:
        return not self.ended and time.monotonic() < self.began + SECONDS


def _vjp(point: Point) -> Evaluation[Any]:
    """Return the vjp of most requests: with all cotangents, with respect to all inputs."""
    side, shape = point.spec.outputs, next(iter(point.inputs.values())).shape
    cotangents = {name: np.ones(shape, DTYPES[side.dtypes[name]].numpy) for name in side.differentiable}
    return derivatives.vjp(point, tuple(point.inputs), cotangents, batched=False, outputs=False)
