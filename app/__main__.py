"""The only launcher: ``python -m app`` serves with the settings of the ``PULLBACK_*`` environment variables.

It exits with 0 after a signal to stop, 1 when it cannot listen, 2 when a setting is invalid, 3 when the application
cannot start, 4 when a computation is stuck (``app.execution.watchdog``; of several workers, only the stuck one).
"""

import errno
import gc
import logging
import math
import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from pydantic import ValidationError
from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE

from app.children.supervisor import Supervisor
from app.errors import CannotStart, near
from app.http.certificate import BadCertificate, Certificate, read_certificate
from app.http.connection import Connection
from app.http.first_request import first_request
from app.http.key_file import KeyFileCopy
from app.http.listener import UNIX, identity_of, listen, open_standard_files, release, url_of
from app.http.server import OneServer, allow_connections
from app.processes.sources import Sources
from app.runtime.threads import LEAST, usable_threads
from app.settings import Settings
from app.telemetry.line_writer import STDERR, STDOUT, print_errors
from app.telemetry.log import as_lines, logging_config
from app.tensors.validation import entries

CANNOT_LISTEN, WRONG_SETTING = 1, 2
ADDRESS = "PULLBACK_HOST, PULLBACK_PORT"
PREFIX, OF_THE_CLIENT = "PULLBACK_", ("PULLBACK_URL", "PULLBACK_KEY")

IN_USE = ": another process listens there, or one that was stopped still answers its last requests (PULLBACK_GRACE_S)"

FEW_FILES = (
    "PULLBACK_CONNECTIONS is %d, but the limit of open files allows only %d connections: raise it with ulimit -n"
)
FEW_THREADS = (
    "the system allows %d threads, but PULLBACK_WORKERS, PULLBACK_CHECK_PROCESSES and PULLBACK_JOBS make up to %d "
    "processes with %d each: raise it (pids_limit in Compose, ulimit -u), or lower them"
)
EXPOSED = (
    "PULLBACK_HOST is %s, so other machines may connect, and no key is needed: "
    "set PULLBACK_KEYS_FILE, or let only trusted machines reach the port"
)


def main() -> int:
    """Serve until a signal stops the service; return the exit code."""
    open_standard_files()
    signal.signal(signal.SIGTERM, _quit)
    try:
        return _start()
    except KeyboardInterrupt:
        return 0
    finally:
        STDOUT.flush()
        STDERR.flush()


def _start() -> int:
    """Read the settings and the files that they name, listen, and serve; return the exit code."""
    try:
        settings = Settings()
    except ValidationError as error:
        print_errors(*faults(error))
        return WRONG_SETTING
    print_errors(*unknown(os.environ))
    try:
        certificate = read_certificate(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
    except BadCertificate as error:
        print_errors(str(error))
        return WRONG_SETTING
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        is_path = settings.host.startswith(UNIX)
        where = f"{settings.host} (PULLBACK_HOST)" if is_path else f"{settings.host}:{settings.port} ({ADDRESS})"
        why = f"{error.strerror or error}{IN_USE if error.errno == errno.EADDRINUSE else ''}"
        print_errors(f"cannot listen on {where}: {why}")
        return CANNOT_LISTEN
    identity = identity_of(settings.host)
    try:
        return serve(settings, listener, certificate)
    finally:
        release(settings.host, identity)


def serve(settings: Settings, listener: socket.socket, certificate: Certificate | None = None) -> int:
    """Serve on ``listener``, in this process or in several; return the exit code."""

    def announce() -> None:
        STDOUT.write(as_lines(welcome(settings, listener, bool(certificate)), settings.log))

    config = server_config(settings, certificate)
    allowed = allow_connections(settings.connections, settings.check_processes + settings.jobs)
    if allowed < settings.connections:
        logging.getLogger("pullback").warning(FEW_FILES, settings.connections, allowed)
        config.limit_concurrency = allowed
    threads = usable_threads()
    if threads is not None and threads < settings.processes * LEAST:
        logging.getLogger("pullback").warning(FEW_THREADS, threads, settings.processes, LEAST)
    if not settings.is_loopback and settings.keys_file is None:
        logging.getLogger("pullback").warning(EXPOSED, settings.host or "empty")
    if settings.reload:
        # It imports TensorFlow, and main() must report invalid settings before.
        from app.children.reloader import Reloader  # noqa: PLC0415

        return 0 if Reloader(settings, config, listener, announce).run() else STARTUP_FAILURE
    if settings.workers > 1:
        return supervise(settings, config, listener, announce)
    from app.children import serving  # noqa: PLC0415

    return serving.serve(OneServer(config, announce), settings, listener)


def welcome(settings: Settings, listener: socket.socket, is_secure: bool) -> list[str]:
    """Return where the service listens, and a request of curl that works from this machine."""
    url, is_path = url_of(listener, "https" if is_secure else "http"), listener.family == socket.AF_UNIX
    options = [f"--unix-socket {listener.getsockname()}"] if is_path else []
    if is_secure:
        options.append(f"--cacert {shlex.quote(str(settings.tls_cert))}")
    if settings.keys_file:
        options.append('-H "Authorization: Bearer $PULLBACK_KEY"')
    base = "http://localhost" if is_path else url
    return [
        f"Pullback is ready on {url}" if is_path else f"Pullback is ready on {url} (docs: {url}/docs)",
        f"Try: {first_request(base, options)}",
    ]


def supervise(settings: Settings, config: Config, listener: socket.socket, announce: Callable[[], None]) -> int:
    """Serve with several workers, which are copies of this process; return the exit code."""
    try:
        with shared_files(settings) as (shared, refresh):
            # It imports TensorFlow, and the library of metrics, which must know their folder.
            from app.children import serving  # noqa: PLC0415

            # The collector of a copy must not traverse TensorFlow's half a million objects, nor copy their pages.
            gc.collect()
            gc.freeze()
            serve = partial(serving.serve, settings=shared, listener=listener)
            read = partial(Sources, settings.ops_path)
            supervisor = Supervisor(config, listener, serve, read_sources=read, announce=announce, on_tick=refresh)
            return 0 if supervisor.run() else STARTUP_FAILURE
    except CannotStart as error:
        print_errors(str(error))
    except OSError as error:
        print_errors(f"cannot start workers: {error}")
    return STARTUP_FAILURE


@contextmanager
def shared_files(settings: Settings) -> Generator[tuple[Settings, Callable[[], None]]]:
    """Give the workers that start in this block a folder for what they share, and the same keys; remove it then.

    Yield their settings, and the function that looks for new keys. Raises ``CannotStart`` when there can be no folder,
    or when the file of keys is invalid.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="pullback-workers-", ignore_cleanup_errors=True)
    except OSError as error:
        raise CannotStart(f"cannot create a folder for temporary files (TMPDIR): {error.strerror}") from error
    with folder as path:
        refresh, folder_of_all = _do_nothing, Path(path)
        if settings.metrics:
            (metrics := folder_of_all / "metrics").mkdir()
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics)
        shared = {"data": settings.data or folder_of_all / "data"}
        if settings.keys_file:
            shared["keys_file"] = folder_of_all / "keys"
            refresh = KeyFileCopy(settings.keys_file, shared["keys_file"]).refresh
        yield settings.model_copy(update=shared), refresh


def _do_nothing() -> None:
    """Do nothing."""


def server_config(settings: Settings, certificate: Certificate | None = None) -> Config:
    """Return uvicorn's configuration; ``app.children.serving`` replaces the application by that of the settings."""
    return Config(
        "app.main:create_app",
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
        # ``Connection`` enforces it: new connections over it are refused, and the others are served.
        limit_concurrency=settings.connections,
        # Browsers must not guess another type for a response.
        headers=[("X-Content-Type-Options", "nosniff")],
        ssl_context_factory=certificate,
        # Longer than the minute of most load balancers, so the load balancer, not we, closes idle connections.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(settings.grace_s),
        # A worker in one long kernel answers its supervisor late, and must not be killed for that.
        timeout_worker_healthcheck=60,
    )


def faults(error: ValidationError) -> list[str]:
    """Return a line for each invalid setting."""
    return [
        f"{PREFIX}{str(e.loc[0]).upper()}: expected {e.expected}, got {e.got}"
        for e in entries(error.errors(), Settings.model_fields)
    ]


def unknown(environment: Mapping[str, str]) -> list[str]:
    """Return a line for each variable that looks like a setting but is not."""
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    unknown_names = [name for name in environment if name.startswith(PREFIX) and name not in (*known, *OF_THE_CLIENT)]
    return [
        f"warning: {name} is not a setting and has no effect; expected {near(name, known)}" for name in unknown_names
    ]


def _quit(signum: int, frame: FrameType | None) -> None:
    """Exit with 0: uvicorn raises the signal again after a regular stop."""
    del signum, frame
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
