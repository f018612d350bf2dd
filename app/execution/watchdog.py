"""The watchdog: a process whose computation goes on and on past its deadline ends, so that another takes its place.

It is a thread, not a timer of the event loop: it must see a lane that is stuck while the loop answers, and one that
takes the loop with it. A kernel that never gives up the interpreter is beyond its help; the supervisor of several
workers kills such a process, for it does not answer.
"""

import logging
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from app.execution.lane import Lane
from app.settings import Settings

log = logging.getLogger("pullback")

STUCK = 4
"""The exit status."""
LOOK_S = 1.0
# On a busy machine XLA may compile for a minute, which nothing can interrupt either.
COMPILATION_S = 60.0


def patience_s(settings: Settings) -> float:
    """Return how long past its deadline work may go on: as long as all of a request, and what a stop allows for."""
    return max(settings.deadline_s + settings.grace_s, COMPILATION_S)


@contextmanager
def watchdog(lane: Lane, patience_s: float) -> Generator[None]:
    """Inside this block, end the process when work on ``lane`` is past its deadline by more than ``patience_s``."""
    left = threading.Event()
    threading.Thread(target=_watch, args=(lane, patience_s, left), name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        left.set()


def _watch(lane: Lane, patience_s: float, left: threading.Event) -> None:
    looks = 0
    while not left.wait(LOOK_S):
        late = lane.overrun()
        # Seen twice: a process that was stopped for a while, with its container for one, has had no chance to end.
        looks = looks + 1 if late is not None and late.seconds > patience_s else 0
        if late is not None and looks > 1:
            log.critical("op %s is stuck, %.0f s past its deadline: exiting", late.owner, late.seconds)
            # Not by sys.exit, which ends a thread, nor in good order, which waits for what never comes.
            os._exit(STUCK)
