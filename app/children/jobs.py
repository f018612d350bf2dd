"""A process of jobs: a fork that loads the ops as the service has, and answers one request after the other.

It is the whole application without a socket, so that the answer is that of the service.
"""

import asyncio
import logging
import logging.config
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from app.children.checks import come_last, need_unchanged
from app.children.fork_server import start_as_copy
from app.errors import CannotStart, InternalError, Overloaded
from app.http.request import OF_JOB, OF_KEY
from app.kept.job_records import Claim
from app.main import create_app
from app.processes.forks import BROKEN
from app.processes.messages import Done, Head, Piece, Progress, Ready, Setup
from app.processes.steps import FOLLOWER, Follower
from app.runtime.cores import share_cores
from app.runtime.journal import JOURNAL
from app.telemetry.accounts import Account, Usage
from app.telemetry.line_writer import STDERR, STDOUT
from app.telemetry.log import logging_config
from app.telemetry.printed import SUBJECT

# How often the service learns how far a job has come.
PROGRESS_S = 0.05
# Each response gets these anew.
OF_THE_CONNECTION = (b"connection", b"content-length", b"x-request-id")


# It is the whole application without a socket, so that the answer is that of the service.
def run_jobs(connection: Connection, journal: int) -> NoReturn:
    """Answer the requests that come on ``connection`` after the ``Setup``, and exit this process when it closes.

    Each evaluation is noted in the file ``journal``.
    """
    come_last()
    try:
        setup: Setup = connection.recv()
        logging.config.dictConfig(logging_config(setup.settings.log))
        # Before any thread runs: the checks of a job run in processes of their own.
        checks = start_as_copy(niceness=0) if setup.settings.check_processes and setup.settings.checks else None
        share_cores(setup.settings.workers, setup.processes)
        # The service has logged these warnings already, such as those about unavailable ops.
        logging.disable(logging.WARNING)
        app = create_app(setup.settings, checks=checks)
        logging.disable(logging.NOTSET)
        need_unchanged(setup)
    except (EOFError, ConnectionError):
        _exit()
    except CannotStart as error:
        connection.send(Done(Overloaded(f"the process of jobs cannot start: {error}", retry_after_s=5)))
        os._exit(BROKEN)
    JOURNAL.keep_in(journal)
    asyncio.run(_serve(app, connection))
    _exit()


async def _serve(app: Any, connection: Connection) -> None:
    loop, claims = asyncio.get_running_loop(), asyncio.Queue[Claim]()

    def receive() -> None:
        with suppress(EOFError, OSError):
            while True:
                loop.call_soon_threadsafe(claims.put_nowait, connection.recv())
        _exit()  # whatever is computed

    async with app.router.lifespan_context(app):
        threading.Thread(target=receive, name="requests", daemon=True).start()
        connection.send(Ready())
        while True:
            claim = await claims.get()
            SUBJECT.begin(f"job {claim.id}")
            account = Account(claim.key, Usage())
            is_whole = await _answer(app, claim, connection, account)
            STDOUT.flush()
            SUBJECT.begin()
            error = None if is_whole else InternalError("the answer broke off; the log says why")
            connection.send(Done(error, account.owed()))


def _follower(connection: Connection) -> Follower:
    """Return what sends how far a job has come to the service, at most twenty times a second."""
    sent = 0.0

    def follow(done: int, total: int) -> None:
        nonlocal sent
        if (now := time.monotonic()) - sent >= PROGRESS_S:
            sent = now
            connection.send(Progress(done, total))

    return follow


async def _answer(app: ASGIApp, claim: Claim, connection: Connection, account: Account) -> bool:
    """Answer the request of a job, for which ``account`` pays; return whether the answer is whole.

    The log names the request by the job's id.
    """
    path, _, query = claim.request.target.partition("?")
    request, ended = claim.request, asyncio.Event()
    headers = [(b"host", b"localhost"), (b"x-request-id", claim.id.encode()), *request.headers]
    bodies: list[Message] = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> Message:
        if not bodies:
            await ended.wait()
            return {"type": "http.disconnect"}
        return bodies.pop()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = tuple(pair for pair in message["headers"] if pair[0] not in OF_THE_CONNECTION)
            await asyncio.to_thread(connection.send, Head(message["status"], kept))
            return
        if body := message.get("body"):
            await asyncio.to_thread(connection.send, Piece(bytes(body)))
        if not message.get("more_body"):
            ended.set()

    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "headers": [*headers, (b"content-length", b"%d" % len(request.body))],
        OF_KEY: claim.key,
        OF_JOB: account,
    }
    FOLLOWER.set(_follower(connection))
    await app(scope, receive, send)
    return ended.is_set()


def _exit() -> NoReturn:
    """End the process, without the threads of TensorFlow, which cannot be stopped."""
    STDERR.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # never reached
