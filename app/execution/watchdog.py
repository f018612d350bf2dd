"""The watchdog: it ends a process whose computation is stuck past its deadline, so that another replaces it.

It is a thread, not a timer of the event loop: it must see a scheduler that is stuck while the loop runs, and one that
blocks the loop. It cannot end a kernel that never releases the interpreter; the supervisor of several workers kills
such a process because it does not respond.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from app.execution.scheduler import Overrun, Scheduler
from app.telemetry.line_writer import STDERR

log = logging.getLogger("pullback")

STUCK = 4
"""The exit status."""
INTERVAL_S = 1.0
# Tracing and compiling cannot be interrupted either, and take long on a busy machine. They are stuck only if their
# thread uses no CPU for this long, at least, or if they take this long altogether.
IDLE_S, LONGEST_TRACE_S = 60.0, 1800.0
PROGRESS_CPU_S = 0.02


@contextmanager
def watchdog(scheduler: Scheduler, patience_s: float) -> Generator[None]:
    """Inside this block, end the process when work on ``scheduler`` is past its deadline by more than ``patience_s``.

    Work that traces or compiles may take longer while it makes progress.
    """
    stop = threading.Event()
    watch = Watch(scheduler, patience_s)
    threading.Thread(target=watch.run, args=(stop,), name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


class Watch:
    """A watch over a scheduler: when each late thread last used CPU, and how often in a row one was stuck."""

    def __init__(self, scheduler: Scheduler, patience_s: float) -> None:
        """Watch ``scheduler``; work may run past its deadline for ``patience_s``."""
        self._scheduler, self._patience_s = scheduler, patience_s
        self._progress: dict[int, tuple[float, float]] = {}
        self._stuck_checks = 0

    def run(self, stop: threading.Event) -> None:
        """Check the scheduler every second until ``stop`` is set."""
        while not stop.wait(INTERVAL_S):
            if stuck := self.look(self._scheduler.overruns(), time.monotonic()):
                log.critical("op %s is stuck, %.0f s past its deadline: exiting", stuck.owner, stuck.seconds)
                STDERR.flush()
                # sys.exit would end only this thread, and a regular exit would wait for the stuck work.
                os._exit(STUCK)

    def look(self, overruns: Iterable[Overrun], now: float) -> Overrun | None:
        """Return work that is stuck at ``now``, a time of ``time.monotonic``, if some was at the last look too.

        Twice, because a process that was suspended, with its container for example, had no chance to finish.
        """
        stuck = [late for late in overruns if self.is_stuck(late, now)]
        self._stuck_checks = self._stuck_checks + 1 if stuck else 0
        return stuck[0] if self._stuck_checks > 1 else None

    def is_stuck(self, late: Overrun, now: float) -> bool:
        """Return whether work is stuck at ``now``, a time of ``time.monotonic``."""
        if not late.is_tracing:
            return late.seconds > self._patience_s
        cpu_s, since = self._progress.get(late.thread, (-math.inf, now))
        if abs(late.cpu_s - cpu_s) > PROGRESS_CPU_S:
            self._progress[late.thread] = late.cpu_s, now
            since = now
        # Its thread may have been idle since earlier work.
        idle_s = min(now - since, late.seconds)
        return idle_s > max(self._patience_s, IDLE_S) or late.seconds > LONGEST_TRACE_S
