"""The state of the process, and a stop that loses no request."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from types import FrameType

LIFECYCLE = "lifecycle"
"""The key of the ``Lifecycle`` in the state that the application shares with the server."""

logger = logging.getLogger("pullback")


@dataclass
class Lifecycle:
    """The state of a process: whether it is about to stop, and the number of requests in progress.

    ``finished`` counts the requests of the general path, which has all while the process drains, without those that
    were ``cut_off`` at the end of the grace time.
    The functions ``at_stop`` are called when the server begins to stop, while requests are in progress.
    """

    draining: bool = False
    in_flight: int = 0
    finished: int = 0
    cut_off: int = 0
    at_stop: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def stop(self) -> None:
        """Begin to stop: what takes long must end now."""
        self.draining = True
        for end in self.at_stop:
            end()


@contextlib.contextmanager
def drain_on_term(lifecycle: Lifecycle, drain_s: float) -> Generator[None, None, None]:
    """Inside this block, the first SIGTERM sets ``lifecycle.draining``; ``drain_s`` later the server receives it.

    In that time a load balancer sees readiness fail and stops sending requests; the server refuses connections as soon
    as it receives the signal. A second SIGTERM is passed on at once, SIGINT always. At the end of the block, the log
    says how many requests have finished since the first SIGTERM.

    Enter it in the application's lifespan: by then the server has installed its own handler, in a worker process too.
    Elsewhere (in another thread, or without a handler to pass the signal to) the block changes nothing.
    """
    server = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(server):
        yield
        return
    loop = asyncio.get_running_loop()
    before: int | None = None

    def drain() -> None:
        nonlocal before
        before = lifecycle.finished
        logger.info("draining for %g s, %d requests in flight", drain_s, lifecycle.in_flight)
        loop.call_later(drain_s, server, signal.SIGTERM, None)

    def on_term(signum: int, frame: FrameType | None) -> None:
        if lifecycle.draining:
            server(signum, frame)
        else:
            lifecycle.draining = True
            loop.call_soon_threadsafe(drain)

    signal.signal(signal.SIGTERM, on_term)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, server)
        if before is not None:
            logger.info("stopped, %d requests finished, %d cut off", lifecycle.finished - before, lifecycle.cut_off)
