"""SIGKILL of one of two workers, each in turn."""

import os
import signal
import time
from functools import partial

from tests.hostile.replacement import lose_a_worker
from tests.hostile.stage import Stage
from tests.hostile.witness import watch

MOST = 4


def attack(stage: Stage) -> None:
    """Kill a worker, wait until it is replaced, and again while there is time."""
    end = time.monotonic() + stage.seconds
    with watch(stage.target, (), stage.findings, stage.seed):
        for number in range(MOST):
            workers = stage.target.workers()
            lose_a_worker(stage, partial(os.kill, workers[number % len(workers)], signal.SIGKILL))
            if time.monotonic() > end:
                return
