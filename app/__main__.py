"""The only launcher: ``python -m app`` serves with the settings of the ``PULLBACK_*`` environment variables.

It exits with 0 after a signal to stop, 1 when it cannot listen, 2 when a setting is invalid, 3 when the application
cannot start, 4 when a computation is stuck (``app.execution.watchdog``; of several workers, only the stuck one).
"""

import logging
import math
import os
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType

from pydantic import ValidationError
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE

from app.errors import CannotStart, near
from app.http.connection import Connection
from app.http.listener import UNIX, identity_of, listen, release, url_of
from app.http.server import OneServer, Workers, allow_connections
from app.settings import Settings
from app.telemetry.line_writer import STDERR
from app.telemetry.log import logging_config
from app.tensors.validation import entries

CANNOT_LISTEN, WRONG_SETTING = 1, 2
PREFIX, OF_THE_CLIENT = "PULLBACK_", ("PULLBACK_URL", "PULLBACK_KEY")

EXAMPLE = '{"inputs":{"x":[0,100]},"order":2}'
READY = """\
Pullback is ready on {url} (docs: {url}/docs)
Try: curl -s {url}/v1/ops/log1pexp/gradients -H 'Content-Type: application/json' -d '{example}'"""
READY_ON_PATH = """\
Pullback is ready on {url}
Try: curl -s --unix-socket {path} http://localhost/v1/ops/log1pexp/gradients -H 'Content-Type: application/json' \
-d '{example}'"""

EXPOSED = (
    "PULLBACK_HOST is %s, so other machines may connect, and no key is needed: "
    "set PULLBACK_KEYS_FILE, or let only trusted machines reach the port"
)


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
        check_certificate(settings)
    except OSError as error:
        _print_errors(f"cannot use the certificate (PULLBACK_TLS_CERT, PULLBACK_TLS_KEY): {error.strerror or error}")
        return WRONG_SETTING
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        where = settings.host if settings.host.startswith(UNIX) else f"{settings.host}:{settings.port}"
        _print_errors(f"cannot listen on {where} (PULLBACK_HOST, PULLBACK_PORT): {error.strerror}")
        return CANNOT_LISTEN
    identity = identity_of(settings.host)
    try:
        return serve(settings, listener)
    except KeyboardInterrupt:
        return 0
    finally:
        release(settings.host, identity)
        STDERR.flush()


def serve(settings: Settings, listener: socket.socket) -> int:
    """Serve on ``listener``, in this process or in several; return the exit code."""

    def announce() -> None:
        url = url_of(listener, "https" if settings.tls_cert else "http")
        if listener.family == socket.AF_UNIX:
            print(READY_ON_PATH.format(url=url, path=listener.getsockname(), example=EXAMPLE), flush=True)
        else:
            print(READY.format(url=url, example=EXAMPLE), flush=True)

    config = server_config(settings)
    allow_connections(settings.connections)
    if not settings.is_loopback and settings.keys_file is None:
        logging.getLogger("pullback").warning(EXPOSED, settings.host or "empty")
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
        # ``Connection`` enforces it: new connections over it are refused, and the others are served.
        limit_concurrency=settings.connections,
        # Browsers must not guess another type for a response.
        headers=[("X-Content-Type-Options", "nosniff")],
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        # Longer than the minute of most load balancers, so the load balancer, not we, closes idle connections.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(settings.grace_s),
        # A worker in one long kernel answers its supervisor late, and must not be killed for that.
        timeout_worker_healthcheck=60,
    )


def check_certificate(settings: Settings) -> None:
    """Raise ``OSError`` if the certificate or its key cannot be used; a key with a password cannot."""
    if settings.tls_cert is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # An empty password, because OpenSSL would ask for one on the terminal.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")


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


def _print_errors(*lines: str) -> None:
    for line in lines:
        print(f"pullback: {line}", file=sys.stderr)


def _quit(signum: int, frame: FrameType | None) -> None:
    """Exit with 0: uvicorn raises the signal again after a regular stop."""
    del signum, frame
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
