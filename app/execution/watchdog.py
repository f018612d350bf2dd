"""The watchdog: it ends a process whose computation is stuck past its deadline, so that another replaces it.

Before that, it refuses the work that waits for the stuck computation.

A trace does not end the process: it holds no other work. The watchdog reports it.

It is a thread, not a timer of the event loop: it must see a scheduler that is stuck while the loop runs, and one that
blocks the loop. It cannot end a kernel that never releases the interpreter; the supervisor of several workers kills
such a process because it does not respond.
"""

import logging
import os
import threading
import weakref
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from app.execution.scheduler import Scheduler
from app.execution.tickets import STUCK_S, Overrun, Ticket
from app.telemetry.line_writer import STDERR

log = logging.getLogger("pullback")

STUCK = 4
"""The exit status."""
INTERVAL_S = 1.0


@contextmanager
def watchdog(scheduler: Scheduler, patience_s: float) -> Generator[None]:
    """Inside this block, end the process when work on ``scheduler`` is more than ``patience_s`` past its deadline."""
    stop = threading.Event()
    watch = Watch(scheduler, patience_s)
    threading.Thread(target=watch.run, args=(stop,), name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


class Watch:
    """A watch over a scheduler: how often in a row work was stuck, and which late traces are reported."""

    def __init__(self, scheduler: Scheduler, patience_s: float) -> None:
        """Watch ``scheduler``; work may run past its deadline for ``patience_s``."""
        self._scheduler, self._patience_s = scheduler, patience_s
        self._stuck_checks, self._reported = 0, weakref.WeakSet[Ticket]()

    def run(self, stop: threading.Event) -> None:
        """Check the scheduler every second until ``stop`` is set."""
        while not stop.wait(INTERVAL_S):
            self.report(self._scheduler.late_traces())
            self._scheduler.refuse_behind(STUCK_S)
            if stuck := self.look(self._scheduler.overruns()):
                log.critical("op %s is stuck, %.0f s past its deadline: exiting", stuck.owner, stuck.seconds)
                STDERR.flush()
                # sys.exit would end only this thread, and a regular exit would wait for the stuck work.
                os._exit(STUCK)

    def report(self, late: Iterable[Ticket]) -> None:
        """Log each late trace once."""
        late = [*late]
        for ticket in late:
            if ticket not in self._reported:
                self._reported.add(ticket)
                message = "op %s: a trace goes on %.0f s past its deadline, and keeps a thread; late traces: %d"
                log.warning(message, ticket.owner, ticket.late_s, len(late))

    def look(self, overruns: Iterable[Overrun]) -> Overrun | None:
        """Return work that is stuck, if some was at the last look too.

        Twice, because a process that was suspended, with its container for example, had no chance to finish.
        """
        stuck = [late for late in overruns if late.seconds > self._patience_s]
        self._stuck_checks = self._stuck_checks + 1 if stuck else 0
        return stuck[0] if self._stuck_checks > 1 else None
