"""The supervisor of several server processes: it starts them, announces them, replaces those that die, and stops them.

Workers are copies of this process, which has imported TensorFlow and runs nothing with it: they are ready in a second,
and share its memory. The replacement of a worker reads the ops anew. If their files have changed meanwhile, it would
answer equal requests differently from its siblings, so the supervisor starts none while a sibling serves.
"""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe, connection
from types import FrameType
from typing import TypeAlias

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE

from app.execution.sources import DISTRIBUTION, Sources
from app.http.server import GracefulServer
from app.runtime.forks import STOPS, ending_of, start_copy

Serve: TypeAlias = Callable[[GracefulServer], int]
"""A function that serves until a signal, and returns the exit code."""

READY = b"ready"
# The status of a worker that has read other files than its siblings.
CHANGED = 5
TICK_S, ASK_S, RECHECK_S = 0.25, 1.0, 5.0
# The longest pause before another attempt when replacements die before they serve.
MAX_PAUSE_S = 60.0
MAX_NAMED = 5
# How often the first workers may start again because a file has changed meanwhile.
MAX_STARTS = 3

logger = logging.getLogger("pullback")


class Worker:
    """One of several server processes, a copy of the supervisor."""

    def __init__(self, config: Config, sources: Sources, serve: Serve) -> None:
        """Start the process, which serves only if it has read ``sources``."""
        self.is_serving, self.is_leaving = False, False
        self._connection, theirs = Pipe()
        self._asked_at, self._is_asked = 0.0, False
        self._patience_s = config.timeout_worker_healthcheck
        # The supervisor stops it, or dies.
        run = partial(_serve, _WorkerServer(config, sources), theirs, serve)
        self._process = start_copy("pullback worker", run, signal.SIGINT)
        # The process has its own copy of this end. Once it dies, the pipe has no writer.
        theirs.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable once the process has ended, until ``exitcode`` is not ``None``."""
        return self._process.sentinel

    @property
    def exitcode(self) -> int | None:
        """What the process ended with, ``None`` while it runs."""
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        self.is_leaving, self.is_serving = True, False
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def exchange(self, now: float) -> None:
        """Ask whether the worker is ready, and read the answer to the last question if it has come; do not wait."""
        try:
            if self._is_asked and self._connection.poll(0):
                self.is_serving, self._is_asked = self._connection.recv_bytes() == READY and not self.is_leaving, False
            if not self._is_asked and (not self.is_serving or now - self._asked_at >= ASK_S):
                self._connection.send_bytes(b"ready?")
                self._asked_at, self._is_asked = now, True
        except (OSError, EOFError):
            pass  # it has died, which its exit code shows

    def is_hung(self, now: float) -> bool:
        """Return whether the worker has not answered for too long."""
        return self._is_asked and now - self._asked_at > self._patience_s


def _serve(server: GracefulServer, asked: connection.Connection, serve: Serve) -> int:
    """Serve, in the worker's own process; return its exit code."""
    threading.Thread(target=_answer, args=(server, asked), daemon=True).start()
    return serve(server)


def _answer(server: GracefulServer, asked: connection.Connection) -> None:
    """Tell the supervisor whether the server is ready, whenever it asks."""
    with suppress(OSError, EOFError):  # the supervisor has died
        while asked.recv_bytes():
            asked.send_bytes(READY if server.started else b"not yet")


class _WorkerServer(GracefulServer):
    """The server of a worker."""

    def __init__(self, config: Config, sources: Sources) -> None:
        """Store the files that the worker must have read."""
        super().__init__(config)
        self._sources = sources

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, unless a file has changed before the application has read it."""
        if self._sources.changed():
            sys.exit(CHANGED)
        await super().startup(sockets)


class _Place:
    """The place of a worker and of those that replace it."""

    def __init__(self) -> None:
        """Start empty."""
        self.worker: Worker | None = None
        self.failures, self.retry_at, self.code, self.ending = 0, 0.0, 0, ""

    @property
    def is_alive(self) -> bool:
        """Whether a worker runs here."""
        return self.worker is not None and self.worker.exitcode is None

    @property
    def is_ready(self) -> bool:
        """Whether a worker accepts requests here."""
        return self.worker is not None and self.worker.is_serving


class Supervisor:
    """The supervisor of the workers of a service."""

    def __init__(
        self,
        config: Config,
        listener: socket.socket,
        serve: Serve,
        *,
        read_sources: Callable[[], Sources],
        announce: Callable[[], None],
        on_tick: Callable[[], None],
    ) -> None:
        """Store the functions that serve in a worker, read the files of workers, and announce the service.

        ``on_tick`` runs several times a second.
        """
        self._config, self._listener, self._serve = config, listener, serve
        self._read_sources, self._on_tick = read_sources, on_tick
        self._announce: Callable[[], None] | None = announce
        self._sources, self._places = read_sources(), [_Place() for _ in range(config.workers)]
        self._own = self._sources
        self._signals, self._outdated = list[int](), list[Worker]()
        self._has_served, self._reported, self._starts = False, list[str](), 0

    def run(self) -> bool:
        """Serve until a signal stops the service; return ``False`` if no worker can start."""
        for number in STOPS:
            signal.signal(number, self._on_signal)
        for place in self._places:
            self._start(place)
        while not self._handle_signals():
            self._on_tick()
            self._tick(time.monotonic())
            if (
                not self._has_served
                and all(place.worker is None for place in self._places)
                and not self._starts_again()
            ):
                logger.error("no worker can start: %s", "; ".join(place.ending for place in self._places))
                return False
            workers = [place.worker for place in self._places if place.worker]
            connection.wait([worker.sentinel for worker in workers if worker.exitcode is None], TICK_S)
        self._stop()
        return True

    def _starts_again(self) -> bool:
        """Start the first workers again if each has found a change, as when an op writes a file on import."""
        self._starts += 1
        if self._starts >= MAX_STARTS or any(place.code != CHANGED for place in self._places):
            return False
        self._sources = self._read_sources()
        for place in self._places:
            self._start(place)
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._signals.append(number)

    def _handle_signals(self) -> bool:
        """Begin to replace the workers after SIGHUP; return whether a signal stops the service."""
        if signal.SIGINT in self._signals or signal.SIGTERM in self._signals:
            return True
        if self._signals:
            self._signals.clear()
            logger.info("SIGHUP: replacing the workers one after the other")
            self._reported = []
            self._read_again()
            self._outdated = [place.worker for place in self._places if place.worker]
        return False

    def _tick(self, now: float) -> None:
        for place in self._places:
            self._check(place, now)
        self._has_served |= any(place.is_ready for place in self._places)
        is_settled = self._has_served and all(place.is_ready or not place.is_alive for place in self._places)
        if is_settled and self._announce:
            self._announce()
            self._announce = None
        if self._outdated and all(place.is_ready for place in self._places):
            # Its listener closes at once, and requests in flight are answered; the other workers serve meanwhile.
            self._outdated.pop().send_signal(signal.SIGINT)

    def _check(self, place: _Place, now: float) -> None:
        """Start the worker of an empty place, end one that hangs, and read the answer of any other."""
        worker = place.worker
        if worker is None:
            if self._has_served and now >= place.retry_at:
                self._replace(place, now)
        elif worker.exitcode is not None:
            self._empty(place, worker, worker.exitcode, now)
        elif worker.is_hung(now):
            logger.error("worker %d has not answered for %d s", worker.pid, self._config.timeout_worker_healthcheck)
            worker.kill()
        else:
            worker.exchange(now)

    def _empty(self, place: _Place, worker: Worker, code: int, now: float) -> None:
        """Empty a place, and decide when its next worker starts."""
        # One that has served is replaced at once: a request that ends workers must not stop the service for long.
        has_served = worker.is_leaving or worker.is_serving
        place.worker, place.code, place.ending = None, code, f"worker {worker.pid} {_ending_of(code)}"
        place.failures = 0 if has_served else place.failures + 1
        pause_s = min(2.0 ** (place.failures - 1), MAX_PAUSE_S) if place.failures else 0.0
        place.retry_at = now + pause_s
        if self._has_served and pause_s:
            logger.error("%s; its replacement starts in %g s", place.ending, pause_s)
        elif self._has_served:
            self._replace(place, now)

    def _replace(self, place: _Place, now: float) -> None:
        """Start a worker in an empty place, unless it would read other files than those that serve."""
        if changed := self._sources.changed():
            if serving := sum(other.is_alive for other in self._places):
                place.retry_at = now + RECHECK_S
                self._report(place, changed, serving)
                return
            logger.warning("no worker is left: starting them with the files that have changed: %s", named(changed))
            self._read_again()
        self._reported = []
        try:
            worker = self._start(place)
        except OSError as error:  # no process, memory or descriptor is left
            place.retry_at = now + RECHECK_S
            logger.error("%s; it cannot be replaced now: %s", place.ending, error.strerror)
            return
        logger.warning("%s; worker %d replaces it", place.ending, worker.pid)

    def _read_again(self) -> None:
        """Let later workers read the ops as they are now. Workers are copies of this process, with the code it has."""
        self._sources = self._read_sources()
        imported = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
        if own := [path for path in self._own.changed() if path in imported or path.endswith(DISTRIBUTION)]:
            logger.warning(
                "restart the service to use its changed code: workers have that of its start: %s", named(own)
            )

    def _report(self, place: _Place, changed: Sequence[str], serving: int) -> None:
        """Log why a worker is not replaced, once for each worker and for each change."""
        report = [place.ending, *changed]
        if report != self._reported:
            self._reported = report
            logger.error(
                "%s; it is not replaced, because files have changed since the workers read them: %s; %d of %d workers "
                "serve; restart the service, or send SIGHUP to process %d, to use the changed files",
                *(place.ending, named(changed), serving, len(self._places), os.getpid()),
            )

    def _start(self, place: _Place) -> Worker:
        place.worker = worker = Worker(self._config, self._sources, self._serve)
        return worker

    def _stop(self) -> None:
        """Stop the workers; pass on a second signal, which ends their draining. SIGINT does not drain at all."""
        # First: otherwise it would stay open here after the last worker has closed it.
        self._listener.close()
        workers = [place.worker for place in self._places if place.worker]
        self._signals = [int(signal.SIGTERM)] * (2 if signal.SIGINT in self._signals else 1)
        while running := [worker for worker in workers if worker.exitcode is None]:
            if self._signals:
                self._signals.pop()
                for worker in running:
                    worker.send_signal(signal.SIGTERM)
            connection.wait([worker.sentinel for worker in running], TICK_S)


def _ending_of(code: int) -> str:
    """Return how a worker ended, from its exit code."""
    known = {STARTUP_FAILURE: " (it cannot start)", CHANGED: " (a file changed while it started)"}
    return f"{'was killed by' if code < 0 else 'ended with'} {ending_of(code)}{known.get(code, '')}"


def named(paths: Sequence[str]) -> str:
    """Return the first paths of a list, and how many more there are."""
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(paths[:MAX_NAMED]) + more
