"""The only launcher: ``python -m app`` serves with the settings of the ``PULLBACK_*`` environment variables.

It exits with 0 after a signal to stop, 1 when it cannot listen, 2 when a setting is invalid, 3 when the application
cannot start, 4 when a computation is stuck (``app.execution.watchdog``; of several workers, only the stuck one).
"""

import logging
import math
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType

from pydantic import ValidationError
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from app.errors import CannotStart, near
from app.http.connection import Connection
from app.settings import Settings
from app.telemetry.log import logging_config
from app.tensors.validation import entries

CANNOT_LISTEN, WRONG_SETTING = 1, 2
PING_S = 0.5
PREFIX, OF_THE_CLIENT = "PULLBACK_", "PULLBACK_URL"
WILDCARDS = ("0.0.0.0", "::", "")

EXAMPLE = '{"inputs":{"x":[1,100]},"order":2}'
READY = """\
Pullback is ready on {url} (docs: {url}/docs)
Try: curl -s {url}/v1/ops/log1pexp2/gradients -H 'Content-Type: application/json' -d '{example}'"""


def main() -> int:
    """Serve until a signal stops the service; return the exit code."""
    signal.signal(signal.SIGTERM, _quit)
    try:
        settings = Settings()
    except ValidationError as error:
        _print_errors(*faults(error))
        return WRONG_SETTING
    _print_errors(*unknown(os.environ))
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        _print_errors(f"cannot listen on {where} (PULLBACK_HOST, PULLBACK_PORT): {error.strerror}")
        return CANNOT_LISTEN
    try:
        return serve(settings, listener)
    except KeyboardInterrupt:
        return 0


def serve(settings: Settings, listener: socket.socket) -> int:
    """Serve on ``listener``, in this process or in several; return the exit code."""

    def announce() -> None:
        print(READY.format(url=url_of(listener), example=EXAMPLE), flush=True)

    config = server_config(settings)
    if settings.workers > 1:
        workers = Workers(config, [listener], announce)
        with shared_metrics() if settings.metrics else nullcontext():
            workers.run()
        return STARTUP_FAILURE if workers.cannot_start else 0
    try:
        OneServer(config, announce).run(sockets=[listener])
    except Exception:
        logging.getLogger("pullback").exception("the service cannot start")
        return STARTUP_FAILURE
    return 0


@contextmanager
def shared_metrics() -> Generator[None]:
    """Give the workers that start in this block an empty folder for their metrics; remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="pullback-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        yield


def application() -> ASGIApp:
    """Return the application of this process; if it cannot start, print the reason and exit."""
    # These import TensorFlow, and main() must report invalid settings before.
    from app.main import create_app  # noqa: PLC0415
    from app.runtime.cores import share_cores  # noqa: PLC0415

    settings = Settings()
    # First, because the module of an op may compute on import.
    share_cores(settings.workers)
    try:
        return create_app(settings)
    except CannotStart as error:
        _print_errors(str(error))
        raise SystemExit(STARTUP_FAILURE) from None


def server_config(settings: Settings) -> Config:
    """Return uvicorn's configuration. Every process builds the application from the environment."""
    return Config(
        "app.__main__:application",
        factory=True,
        workers=settings.workers,
        loop="uvloop",
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=logging_config(settings.log),
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # Longer than the minute of most load balancers, so the load balancer, not we, closes idle connections.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(settings.grace_s),
        # A worker in one long kernel answers its supervisor late, and must not be killed for that.
        timeout_worker_healthcheck=60,
    )


class OneServer(Server):
    """The server of a single process, which announces itself."""

    def __init__(self, config: Config, announce: Callable[[], None]) -> None:
        """Store ``announce``, which is called once the server accepts requests."""
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and announce the server."""
        await super().startup(sockets)
        if not self.should_exit:
            self._announce()


class Workers(Multiprocess):
    """The supervisor of several processes, which announces them once and passes a second signal on."""

    def __init__(self, config: Config, sockets: list[socket.socket], announce: Callable[[], None]) -> None:
        """Store ``announce``, which is called once all workers accept requests."""
        super().__init__(config, sockets)
        self._announce: Callable[[], None] | None = announce
        self.cannot_start = False

    def keep_subprocess_alive(self) -> None:
        """Check the workers, every half second: announce them, or replace the dead ones.

        A worker that dies before all have started would die again, so it ends the service. Until then workers get no
        health check: one to a process that dies meanwhile would wait for the whole health timeout.
        """
        if self.should_exit.is_set():
            return
        if self._announce is None:
            super().keep_subprocess_alive()
            self.cannot_start = self.should_exit.is_set()
        elif not all(worker.process.is_alive() for worker in self.processes):
            self.cannot_start = True
            self.should_exit.set()
        elif all(worker.is_ready(PING_S) for worker in self.processes):
            self._announce()
            self._announce = None

    def handle_int(self) -> None:
        """Stop without draining: send workers a second signal, after the one that starts every stop."""
        super().handle_int()
        self.signal_queue.append(signal.SIGINT)

    def join_all(self) -> None:
        """Wait for the workers; pass on signals that arrive meanwhile."""
        while running := [worker for worker in self.processes if worker.exitcode is None]:
            running[0].process.join(0.1)
            if self.signal_queue:
                self.signal_queue.clear()
                self.terminate_all()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, not listening yet; raise ``OSError`` if the address is in use."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of the listener for clients on this machine."""
    host, port = listener.getsockname()[:2]
    if host in WILDCARDS:
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def faults(error: ValidationError) -> list[str]:
    """Return a line for each invalid setting."""
    return [
        f"{PREFIX}{str(e.loc[0]).upper()}: expected {e.expected}, got {e.got}"
        for e in entries(error.errors(), Settings.model_fields)
    ]


def unknown(environment: Mapping[str, str]) -> list[str]:
    """Return a line for each variable that looks like a setting but is not."""
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    unknown_names = [name for name in environment if name.startswith(PREFIX) and name not in (*known, OF_THE_CLIENT)]
    return [
        f"warning: {name} is not a setting and has no effect; expected {near(name, known)}" for name in unknown_names
    ]


def _print_errors(*lines: str) -> None:
    for line in lines:
        print(f"pullback: {line}", file=sys.stderr)


def _quit(signum: int, frame: FrameType | None) -> None:
    """Exit with 0: uvicorn raises the signal again after a regular stop."""
    del signum, frame
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
