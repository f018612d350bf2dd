"""How a process serves: alone, as a worker, or with one version of saved ops."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from socket import socket

from uvicorn.config import STARTUP_FAILURE

from app.children.fork_server import start_as_copy
from app.errors import CannotStart
from app.execution.assembly import registered
from app.http.server import GracefulServer
from app.main import create_app
from app.runtime.cores import share_cores
from app.settings import Settings
from app.telemetry.line_writer import STDERR, STDOUT, print_errors
from ops import Registry


def serve(
    server: GracefulServer, settings: Settings, listener: socket, ops: Callable[[Settings], Registry] = registered
) -> int:
    """Serve the ops that ``ops`` imports, until a signal; return the exit code.

    This process has imported TensorFlow, and has run nothing with it: a copy of it becomes the fork server of checks
    and jobs.
    """
    checks = None
    if (settings.check_processes and settings.checks) or settings.jobs:
        with suppress(OSError):  # the first check tries again
            checks = start_as_copy()
    try:
        # First, because the module of an op may compute on import.
        share_cores(settings.workers, settings.processes)
        server.config.app = partial(create_app, settings, ops, checks)
        server.run(sockets=[listener])
    except CannotStart as error:
        print_errors(str(error))
        return STARTUP_FAILURE
    except Exception:
        logging.getLogger("pullback").exception("the service cannot start")
        return STARTUP_FAILURE
    finally:
        STDOUT.flush()
        STDERR.flush()
    return 0
