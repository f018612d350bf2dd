"""The end of a worker of several: the others answer, and the supervisor replaces it."""

import time
from collections.abc import Callable, Sequence

from tests.hostile.findings import CRASH, LOST
from tests.hostile.stage import Stage
from tests.hostile.wire import Lost
from tests.hostile.witness import ask, compare

REPLACED_S = 90.0
# The connections of a worker that dies are lost with it, those in its queue too.
DYING_S = 1.0
# A worker that has been started needs this long until it answers as well.
START_S = 8.0


def lose_a_worker(stage: Stage, end_one: Callable[[], None], allowed_s: float = REPLACED_S) -> None:
    """Have ``end_one`` end a worker; send good requests until another has replaced it."""
    before = stage.target.workers()
    end_one()
    end = time.monotonic() + allowed_s
    while before == stage.target.workers() and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(DYING_S)
    started = time.monotonic() + START_S
    while _is_short(stage, before) or time.monotonic() < started:
        if time.monotonic() > end:
            stage.findings.fail(CRASH, f"a worker that should have ended is not replaced after {allowed_s:g} s")
            break
        _ask_all(stage)
    stage.target.expect_exits()


def _is_short(stage: Stage, before: Sequence[int]) -> bool:
    """Return whether a worker is missing, or none has ended."""
    now = stage.target.workers()
    return len(now) < len(before) or now == before


def _ask_all(stage: Stage) -> None:
    for good in stage.goods:
        stage.findings.sent()
        try:
            compare(good, ask(stage.target.port, good.request), stage.findings, "while a worker is replaced,")
        except (Lost, OSError) as error:
            stage.findings.fail(LOST, f"while a worker is replaced: {type(error).__name__} {error}")
