"""The watchdog: it ends a process whose computation is stuck past its deadline, so that another replaces it.

It is a thread, not a timer of the event loop: it must see a lane that is stuck while the loop runs, and one that blocks
the loop. It cannot end a kernel that never releases the interpreter; the supervisor of several workers kills such a
process because it does not respond.
"""

import logging
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from app.execution.lane import Lane
from app.settings import Settings
from app.telemetry.line_writer import STDERR

log = logging.getLogger("pullback")

STUCK = 4
"""The exit status."""
INTERVAL_S = 1.0
# On a busy machine XLA may compile for a minute, which cannot be interrupted either.
COMPILATION_S = 60.0


def patience_s(settings: Settings) -> float:
    """Return how long work may run past its deadline: a whole deadline and the grace time, or a compilation."""
    return max(settings.deadline_s + settings.grace_s, COMPILATION_S)


@contextmanager
def watchdog(lane: Lane, patience_s: float) -> Generator[None]:
    """Inside this block, end the process when work on ``lane`` is past its deadline by more than ``patience_s``."""
    stop = threading.Event()
    threading.Thread(target=_watch, args=(lane, patience_s, stop), name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def _watch(lane: Lane, patience_s: float, stop: threading.Event) -> None:
    late_checks = 0
    while not stop.wait(INTERVAL_S):
        late = lane.overrun()
        # Twice, because a process that was suspended, with its container for example, had no chance to finish in time.
        late_checks = late_checks + 1 if late is not None and late.seconds > patience_s else 0
        if late is not None and late_checks > 1:
            log.critical("op %s is stuck, %.0f s past its deadline: exiting", late.owner, late.seconds)
            STDERR.flush()
            # sys.exit would end only this thread, and a regular exit would wait for the stuck work.
            os._exit(STUCK)
