"""Checks without a service: this process has imported TensorFlow, and a copy of it runs each request.

A copy is ready in milliseconds, loads the pages as they are now, and leaves nothing behind: TensorFlow frees neither a
trace nor a registered gradient. ``pullback/local_checks.py`` is the other side.
"""

import asyncio
import json
import logging
import logging.config
import math
import os
import selectors
import signal
import socket
import traceback
from contextlib import aclosing
from pathlib import Path
from typing import Any, NoReturn

from app.autodiff.admission import admit
from app.errors import CannotStart, PullbackError, Unprocessable
from app.execution.assembly import build, registered
from app.execution.check_steps import Limits
from app.execution.engine import Engine
from app.graphs.installed import ENDING, with_graphs
from app.requests.fields import read
from app.routes.native.check_events import Requested
from app.routes.native.check_models import ChecksRequest
from app.routes.native.nonfinite import spell_nonfinite
from app.runtime import journal
from app.runtime.cores import share_cores
from app.runtime.forks import fork, signal_at_parents_death
from app.runtime.journal import JOURNAL
from app.settings import Settings
from app.telemetry.line_writer import STDERR
from app.telemetry.log import logging_config
from app.telemetry.printed import SUBJECT, Prints
from app.tensors.strict_json import dumps
from ops import Op, Registry, pages_of, register
from pullback.service_folder import SERVICE

OWN, PATH = SERVICE / "ops", "/v1/checks"
MAX_MESSAGE, BROKEN = 1 << 20, 70


def main(descriptor: int) -> NoReturn:
    """Run the request in each message on the socket ``descriptor``; end with the socket.

    A message is JSON, and comes with the pipe for its events. A new message ends the request that still runs. If a copy
    ends with a status other than 0, the last line in the pipe has the status and the last evaluation.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    running, pipe, memory = 0, -1, os.memfd_create("journal")
    prints: Prints | None = None
    os.ftruncate(memory, journal.SIZE)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        watched = -1
        while True:
            for key, _ in selector.select():
                message, pipes = b"", list[int]()
                if key.fileobj is control:
                    message, pipes, *_ = socket.recv_fds(control, MAX_MESSAGE, 1)
                if running and prints is not None:
                    if key.fileobj is control:
                        os.kill(running, signal.SIGKILL)
                    status = os.waitstatus_to_exitcode(os.waitpid(running, 0)[1])
                    prints.wait()  # the command line may end this process when it has read the last event
                    selector.unregister(watched)
                    if status and key.fileobj is not control:
                        _write(pipe, {"event": "ended", "status": status, "evaluation": journal.read(memory)})
                    os.close(watched)
                    os.close(pipe)
                    running = 0
                if key.fileobj is control:
                    if not message:
                        os._exit(0)
                    (pipe,) = pipes
                    journal.clear(memory)
                    running, prints = _fork(message, pipe, control, memory)
                    watched = os.pidfd_open(running)
                    selector.register(watched, selectors.EVENT_READ)
                break  # other events may belong to the request that has just ended


def _fork(message: bytes, pipe: int, control: socket.socket, memory: int) -> tuple[int, Prints]:
    """Return the id of a copy of this process that runs the request in ``message``, and what it prints."""
    with Prints() as prints:
        if pid := fork():
            return pid, prints
        status = BROKEN
        try:
            signal_at_parents_death(signal.SIGKILL)
            control.close()
            prints.enter()
            JOURNAL.keep_in(memory)
            asyncio.run(_run(json.loads(message), pipe))
            status = 0
        except BrokenPipeError:
            status = 0  # the command line has closed the pipe
        except BaseException:  # noqa: BLE001 - it must not go on as a second main process
            traceback.print_exc()
        finally:
            STDERR.flush()
            os._exit(status)


async def _run(message: dict[str, Any], pipe: int) -> None:
    """Load the pages of a request, run its checks, and write their events."""
    try:
        engine = _engine([Path(page) for page in message["pages"]])
        engine.scheduler.start()
        request = read(json.dumps(message["request"]).encode(), ChecksRequest)
        requested = Requested.of(engine, request)
        limits = Limits(math.inf).within(request.budget_s)
        async with aclosing(requested.events(engine, limits)) as events:
            async for event in events:
                if event["event"] == "progress":
                    SUBJECT.begin(f"op {event['op']}")
                elif event["event"] == "report":
                    SUBJECT.begin()
                _write(pipe, event)
    except (PullbackError, CannotStart) as error:
        problem = error if isinstance(error, PullbackError) else Unprocessable(str(error))
        _write(pipe, {"event": "error", "problem": problem.document(PATH)})


class _Once(logging.Filter):
    """Pass each message once: an op that fails at every point would otherwise log a stack trace for each."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = set[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the message is new."""
        message = record.getMessage()
        is_new = message not in self._seen
        self._seen.add(message)
        return is_new


def _engine(pages: list[Path]) -> Engine:
    """Return an engine with the ops of these pages and graphs; without any, with those of a service here."""
    settings = Settings().model_copy(update={"check_processes": 0, "metrics": False, "keys_file": None})
    logging.config.dictConfig(logging_config(settings.log))
    # TensorFlow warns at every trace of an op that it cannot vectorize.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    share_cores(1)
    # Each unavailable page is in the first event.
    logging.disable(logging.WARNING)
    engine, _ = build(settings, (lambda _: _of_pages(pages)) if pages else registered)
    logging.disable(logging.NOTSET)
    logging.getLogger("pullback").addFilter(_Once())
    return engine


def _of_pages(pages: list[Path]) -> Registry:
    """Return the ops of these pages and graphs; a graph finds the other ops of its folder, and those of the service."""
    folders = dict.fromkeys(page.parent for page in pages if page.name.endswith(ENDING))
    if not folders:
        own = [page.stem for page in pages if page.parent == OWN]

        def admit_beside_own(op: Op) -> None:
            if op.name not in own and (OWN / f"{op.name}.py").exists():
                raise ValueError(f"ops/{op.name}.py defines the op {op.name!r} too; rename one")
            admit(op)

        return register(pages, admit_beside_own)
    every = dict.fromkeys([*pages_of([OWN, *folders]), *(page for page in pages if page.suffix == ".py")])
    found = with_graphs(register([*every], admit), folders, admit)
    names = {name for name, page in found.pages.items() if page in pages}
    lost = [page.name.removesuffix(ENDING).removesuffix(".py") for page in pages]
    unavailable = [each for each in found.unavailable if each.name.rpartition("/")[2] in lost]
    ops = {name: op for name, op in found.ops.items() if name in names}
    return Registry(ops, tuple(unavailable), {name: found.pages[name] for name in names}, found.stale)


def _write(pipe: int, event: dict[str, Any]) -> None:
    line = memoryview(dumps(spell_nonfinite(event)) + b"\n")
    while line:
        line = line[os.write(pipe, line) :]
