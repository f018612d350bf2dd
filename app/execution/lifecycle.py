"""Going up and down: what the process is doing, and how it stops without losing a request."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Generator
from dataclasses import dataclass
from types import FrameType

logger = logging.getLogger("pullback")


@dataclass
class Lifecycle:
    """One process: whether it is about to stop, and how many requests it is answering."""

    draining: bool = False
    in_flight: int = 0


@contextlib.contextmanager
def drain_on_term(lifecycle: Lifecycle, drain_s: float) -> Generator[None, None, None]:
    """Inside this block, the first SIGTERM sets ``lifecycle.draining``; ``drain_s`` later the server gets to see it.

    A load balancer needs that time to see readiness fail and to send nothing more, while a server refuses connections
    from the moment that it knows. A second SIGTERM is passed on at once, SIGINT always is.

    Enter it in the application's lifespan: the server has its own handler in place by then, in a worker process too.
    Elsewhere (another thread, no handler to pass the signal to) the block changes nothing.
    """
    server = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(server):
        yield
        return
    loop = asyncio.get_running_loop()

    def drain() -> None:
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
