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
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection
from types import FrameType

from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE

from app.children.worker import CHANGED, Serve, Worker
from app.processes.forks import STOPS, ending_of
from app.processes.sources import DISTRIBUTION, Sources

TICK_S, RECHECK_S = 0.25, 5.0
# The longest pause before another attempt when replacements die before they serve.
MAX_PAUSE_S = 60.0
MAX_NAMED = 5
# How often the first workers may start again because a file has changed meanwhile.
MAX_STARTS = 3

logger = logging.getLogger("pullback")


# Workers are copies of this process, which has imported TensorFlow and runs nothing with it: they are ready in a
# second, and share its memory. The replacement of a worker reads the ops anew. If their files have changed meanwhile,
# it would answer equal requests differently from its siblings, so the supervisor starts none while a sibling serves.
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
            try:
                self._read_again()
            except OSError as error:
                logger.error("SIGHUP: the workers stay, because their files cannot be read now: %s", error)
                return False
            logger.info("SIGHUP: replacing the workers one after the other")
            self._reported = []
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
        place.retry_at = now + RECHECK_S
        try:
            if changed := self._sources.changed():
                if serving := sum(other.is_alive for other in self._places):
                    self._report(place, changed, serving)
                    return
                logger.warning("no worker is left: starting them with the files that have changed: %s", named(changed))
                self._read_again()
            self._reported = []
            worker = self._start(place)
        except OSError as error:  # no process, memory or descriptor is left
            logger.error("%s; it cannot be replaced now: %s", place.ending, error)
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
