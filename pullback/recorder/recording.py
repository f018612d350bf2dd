"""A recording: an application calls a server through this process, until the application or the time ends."""

import asyncio
import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from pullback.addresses import Address, Url, public
from pullback.errors import BadArgument
from pullback.gradcheck.events import summary
from pullback.gradcheck.plan import LEAST
from pullback.gradcheck.targets import Target
from pullback.recorder.checks import Checks, CheckSettings, Pace
from pullback.recorder.evaluations import RECORDED, Evaluations
from pullback.recorder.messages import Exchange
from pullback.recorder.relay import Traffic
from pullback.recorder.reservoir import Reservoirs
from pullback.reports import Event, Report, Start, report

MOST_CONNECTIONS = 256
OTHER_FILES = 64
"""The descriptors that this process needs besides two for each connection."""
ANSWERED = 200
LAST_S = 1.0
"""How long requests that are in flight at the end may take, and still be recorded."""
VARIABLE = "PULLBACK_RECORDED_URL"
"""The environment variable in which a command finds the URL to call."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class RecordOptions:
    """How to record. ``sample`` inputs of each model are kept; the recording ends after ``seconds``, if not before."""

    port: int = 0
    sample: int = 8
    calls: int = 1000
    seed: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    timeout: float = 60.0
    seconds: float | None = None


@dataclass(eq=False)
class Recording:
    """The recording of a server: its ``events`` after ``run``."""

    target: Target
    options: RecordOptions
    command: Sequence[str]
    announce: Callable[[str], None]
    is_interrupted: bool = False
    status: int | None = None
    """The exit status of the command."""
    _signals: asyncio.Queue[int] = field(default_factory=asyncio.Queue[int])

    def __post_init__(self) -> None:
        """Raise ``BadArgument`` for a target or options that do not fit."""
        options = self.options
        if self.target.protocol not in RECORDED:
            expected = ", ".join(f"{protocol}+http" for protocol in RECORDED)
            raise BadArgument(f"expected a URL that begins with one of {expected}, got {self.target}")
        if self.command and options.seconds is not None:
            raise BadArgument("--for: expected none beside a command, whose end is that of the recording")
        if options.calls < LEAST + 1:
            raise BadArgument(f"--calls: expected at least {LEAST + 1} evaluations, got {options.calls}")
        root, name = self.target.parts
        try:
            self._url = Url.parse(root)
        except ValueError as error:
            raise BadArgument(f"expected a URL such as http://localhost:4242, got {public(root)!r}") from error
        if not self._url.host:
            raise BadArgument(f"expected a URL such as http://localhost:4242, got {public(root)!r}")
        path = self._url.path.rstrip("/")
        self._evaluations = Evaluations(self.target.protocol, path, name)
        self._samples = Reservoirs(options.sample, options.seed)
        self._traffic = Traffic(
            self._url, public(root), Address(root).tls_context(), self._evaluations.are_at, self._see, _connections()
        )
        settings = CheckSettings(
            protocol=self.target.protocol,
            root=root,
            target=f"{self.target.protocol}+{public(root)}",
            sample=options.sample,
            calls=options.calls,
            seed=options.seed,
            absolute=options.absolute,
            relative=options.relative,
            timeout=options.timeout,
        )
        self._pace = Pace(self._traffic)
        self._checks = Checks(settings, self._samples, self._pace)
        self._oversized = 0
        self._began = time.monotonic()

    async def run(self) -> None:
        """Record, and then finish the checks. A signal ends the recording, and a second one the checks."""
        loop, traffic = asyncio.get_running_loop(), self._traffic
        for each in SIGNALS:
            loop.add_signal_handler(each, self._signals.put_nowait, each)
        try:
            traffic.listen(self.options.port)
        except OSError as error:
            raise BadArgument(f"--port: cannot listen on port {self.options.port}: {error.strerror}") from error
        checking: asyncio.Task[None] | None = None
        try:
            url = f"http://127.0.0.1:{traffic.port}{self._url.path.rstrip('/')}"
            await self._checks.start()
            self.announce(url)
            checking = loop.create_task(self._checks.run())
            await self._until_the_end(url)
            await self._settle()
            self._checks.has_ended = self._pace.is_free = True
            await self._finish(checking)
        finally:
            if checking is not None:
                checking.cancel()
            await self._checks.close()
            traffic.close()

    async def _until_the_end(self, url: str) -> None:
        if not self.command:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.options.seconds):
                    await self._signals.get()
            return
        try:
            process = await asyncio.create_subprocess_exec(*self.command, env={**os.environ, VARIABLE: url}, stdin=None)
        except OSError as error:
            raise BadArgument(f"cannot run {self.command[0]}: {error.strerror}") from error
        waiting = asyncio.create_task(process.wait())
        while not waiting.done():
            arrived = asyncio.create_task(self._signals.get())
            await asyncio.wait([waiting, arrived], return_when=asyncio.FIRST_COMPLETED)
            if arrived.done() and arrived.result() == signal.SIGTERM:
                # Ctrl-C reaches the command without this process.
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
            arrived.cancel()
        self.status = await waiting

    async def _settle(self) -> None:
        """Wait a little for the answers that are due."""
        end = time.monotonic() + LAST_S
        while self._traffic.in_flight and time.monotonic() < end:
            await asyncio.sleep(LAST_S / 100)

    async def _finish(self, checking: "asyncio.Task[None]") -> None:
        stopped = asyncio.create_task(self._signals.get())
        await asyncio.wait([checking, stopped], return_when=asyncio.FIRST_COMPLETED)
        self.is_interrupted = not checking.done()
        stopped.cancel()
        if checking.done():
            checking.result()

    def _see(self, exchange: Exchange) -> None:
        """Keep an exchange, if it was answered and is drawn."""
        if self._checks.has_ended or exchange.status != ANSWERED or not exchange.request.is_whole:
            self._oversized += exchange.status == ANSWERED and self._evaluations.are_at(
                exchange.method, exchange.target
            )
            return
        body = exchange.request.read()
        model = self._evaluations.model_of(exchange.target, body)
        if model is None:
            return
        is_plain = exchange.response.is_whole and not exchange.is_encoded
        path = exchange.target[len(self._evaluations.path) :]
        self._samples.offer(model, path, body, exchange.response.read() if is_plain else None)

    def events(self) -> Generator[Event, None, None]:
        """Yield the reports, as ``pullback check`` has them."""
        checks, traffic = self._checks, self._traffic
        notes = {
            **{"lost": traffic.lost, "refused": traffic.refused, "unread": traffic.unread},
            "oversized": self._oversized + self._samples.unkept,
        }
        unavailable: dict[str, str] = {}
        reports: list[Report] = []
        for model, reservoir in self._samples:
            found = checks.found.get(model)
            if found is None or not (found.checked or found.faults):
                target = found.target if found is not None else str(self.target)
                unavailable[target] = _why_none(found.unusable or next(iter(found.unreadable), "") if found else "")
                continue
            reports.append(report(found.document(reservoir.seen, self.options.seed, notes)))
        if not reports and not unavailable:
            why = f"{traffic.requests} requests came, and none of them was an evaluation that the server answered"
            unavailable[str(self.target)] = why
        yield Start([each.op for each in reports], unavailable, len(reports))
        yield from reports
        verdicts = [each.verdict for each in reports]
        yield summary(verdicts, sum(each.unfinished > 0 for each in reports), time.monotonic() - self._began)


def _why_none(reason: str) -> str:
    return reason or "no recorded input was checked before the end: record longer, or let the checks finish"


def _connections() -> int:
    """Return how many connections of the application the descriptors of this process allow."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS + OTHER_FILES
    if allowed < wanted:
        allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return min(MOST_CONNECTIONS, (allowed - OTHER_FILES) // 2)
