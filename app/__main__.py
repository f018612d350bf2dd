"""The launcher, and the only one: ``python -m app`` serves as the ``PULLBACK_*`` environment variables say.

It exits with 0 when it was told to stop, 1 when it cannot listen, 2 when a setting is wrong, 3 when the application
cannot start, 4 when a computation is stuck (``app.execution.watchdog``; of several workers only the one that is stuck).
"""

import logging
import math
import os
import signal
import socket
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
from app.http.server import OneServer, Workers, listen, url_of
from app.settings import Settings
from app.telemetry.log import logging_config
from app.tensors.validation import entries

CANNOT_LISTEN, WRONG_SETTING = 1, 2
PREFIX, OF_THE_CLIENT = "PULLBACK_", "PULLBACK_URL"

EXAMPLE = '{"inputs":{"x":[0,100]},"order":2}'
READY = """\
Pullback is ready on {url} (docs: {url}/docs)
Try: curl -s {url}/v1/ops/log1pexp/gradients -H 'Content-Type: application/json' -d '{example}'"""


def main() -> int:
    """Serve until told to stop; return the exit code."""
    signal.signal(signal.SIGTERM, _quit)
    try:
        settings = Settings()
    except ValidationError as error:
        _complain(*faults(error))
        return WRONG_SETTING
    _complain(*unknown(os.environ))
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        _complain(f"cannot listen on {where} (PULLBACK_HOST, PULLBACK_PORT): {error.strerror}")
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
    """Give the workers that start in this block a folder for what they count, empty at first and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="pullback-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        yield


def application() -> ASGIApp:
    """Return the application of this process; where it cannot start, say why in a line and exit."""
    # TensorFlow comes with them, and main() must have its say before.
    from app.main import create_app  # noqa: PLC0415
    from app.runtime.cores import share_cores  # noqa: PLC0415

    settings = Settings()
    # First of all: an op's module may compute something as it is imported.
    share_cores(settings.workers)
    try:
        return create_app(settings)
    except CannotStart as error:
        _complain(str(error))
        raise SystemExit(STARTUP_FAILURE) from None


def server_config(settings: Settings) -> Config:
    """Return uvicorn's configuration. Every process makes the application anew, its settings from the environment."""
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
        # Longer than the minute for which load balancers keep a connection: they close it, never we under their hands.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(settings.grace_s),
        # A worker inside one long kernel answers its supervisor late, and must not be killed for it.
        timeout_worker_healthcheck=60,
    )


def faults(error: ValidationError) -> list[str]:
    """Return a line for each setting that is wrong."""
    found = entries(error.errors(), Settings.model_fields)
    return [f"{PREFIX}{str(e.loc[0]).upper()}: expected {e.expected}, got {e.got}" for e in found]


def unknown(environment: Mapping[str, str]) -> list[str]:
    """Return a line for each variable that looks like a setting and is none."""
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    strange = [name for name in environment if name.startswith(PREFIX) and name not in (*known, OF_THE_CLIENT)]
    return [f"warning: {name} is not a setting and has no effect; expected {near(name, known)}" for name in strange]


def _complain(*lines: str) -> None:
    for line in lines:
        print(f"pullback: {line}", file=sys.stderr)


def _quit(signum: int, frame: FrameType | None) -> None:
    """Exit with 0: uvicorn raises the signal again when it has stopped in good order."""
    del signum, frame
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
