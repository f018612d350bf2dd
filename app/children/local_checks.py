"""Checks without a service: this process has imported TensorFlow, and copies of it run each request.

One copy loads the pages as they are now, and asks a fork server, which is another copy, for a process for each op. All
end with the request, and leave nothing behind. ``pullback/local_checks.py`` is the other side.
"""

import asyncio
import gc
import json
import logging
import logging.config
import math
import os
import select
import signal
import socket
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from app.children.fork_server import start_as_copy
from app.errors import CannotStart, PullbackError, Unprocessable
from app.execution.assembly import build, registered, registry_of, remove_temporary
from app.execution.engine import Engine
from app.processes.check_process import ForkServer
from app.processes.forks import ending_of, start_copy
from app.processes.messages import Setup
from app.processes.pool import CheckPool, Forks
from app.processes.steps import Limits
from app.requests.fields import read
from app.routes.native.check_events import Requested
from app.routes.native.check_models import ChecksRequest
from app.routes.native.points import spell_nonfinite
from app.runtime import journal
from app.runtime.cores import share_cores
from app.settings import Settings
from app.telemetry.line_writer import STDERR
from app.telemetry.log import logging_config
from app.telemetry.printed import Prints
from app.tensors.strict_json import dumps
from ops import Registry, Unavailable

PATH = "/v1/checks"
MAX_MESSAGE = 1 << 20
# A page whose import takes longer is unavailable; it is looked at once in this time.
LOAD_S = 30.0


# One copy loads the pages as they are now, and asks a fork server, which is another copy, for a process for each op.
# All end with the request, and leave nothing behind. ``pullback/local_checks.py`` is the other side.
def main(descriptor: int) -> NoReturn:
    """Run the request in each message on the socket ``descriptor``; end with the socket.

    A message is JSON, and comes with the pipe for its events. A new message ends the request that still runs. If the
    copy that loads the pages ends with a status other than 0, or one of them takes too long, another one leaves out the
    page; if it ends so after that, the last line in the pipe has what it ended with.
    """
    # What is imported stays: neither this process nor a copy of it need traverse half a million objects.
    gc.freeze()
    gc.enable()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    request: _Request | None = None
    while True:
        watched = [] if request is None else [request.sentinel]
        ready, _, _ = select.select([control, *watched], [], [], LOAD_S)
        if control in ready:
            message, pipes, *_ = socket.recv_fds(control, MAX_MESSAGE, 1)
            if request is not None:
                request.kill()
                request.wait()
                request.close()
            if not message:
                os._exit(0)
            request = _Request(json.loads(message), pipes[0])
            request.start(control)
        elif request is not None and not ready:
            request.kill_if_stuck()
        elif request is not None and (status := request.wait()):
            if request.leave_out_page(status):
                request.start(control)
                continue
            _write(request.pipe, {"event": "ended", "status": ending_of(status)})
            request.close()
            request = None
        elif request is not None:
            request.close()
            request = None


class _Request:
    """A request, and the copy of this process that runs it.

    ``broken`` has why pages cannot be imported.
    """

    def __init__(self, message: dict[str, Any], pipe: int) -> None:
        """Start nothing yet."""
        self.pipe, self.broken = pipe, dict[str, str]()
        self._message, self._page, self._memory = message, "", os.memfd_create("page")
        os.ftruncate(self._memory, journal.SIZE)

    def start(self, control: socket.socket) -> None:
        """Start a copy."""
        journal.clear(self._memory)
        with Prints() as self._prints:
            self._copy = start_copy("pullback pages", partial(self._run, control))

    def _run(self, control: socket.socket) -> None:
        control.close()
        server = start_as_copy(niceness=0)  # before any thread runs
        self._prints.enter()
        try:
            with suppress(BrokenPipeError):  # the command line has closed the pipe
                asyncio.run(_run(self._message, self.broken, self.pipe, self._memory, server))
        finally:
            STDERR.flush()

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable when the copy has ended."""
        return self._copy.sentinel

    def kill(self) -> None:
        """End the copy; the processes of its checks end with it."""
        self._copy.kill()

    def wait(self) -> int:
        """Wait for the end of the copy, and until what it has printed is written; return its exit code."""
        status = self._copy.wait()
        self._prints.wait()  # the command line may end this process when it has read the last event
        return status

    def kill_if_stuck(self) -> None:
        """End the copy if it still imports the same page as at the last call."""
        last, self._page = self._page, journal.read(self._memory)
        if self._page and self._page == last:
            self.broken[self._page] = f"its import takes longer than {LOAD_S:g} s"
            self.kill()

    def leave_out_page(self, status: int) -> bool:
        """Note the page that the copy imported when it ended with ``status``; return whether it imported one."""
        if not (page := journal.read(self._memory)):
            return False
        self.broken.setdefault(page, f"its import ends the process with {ending_of(status)}")
        return True

    def close(self) -> None:
        """End the stream of events; the copy must have ended."""
        os.close(self.pipe)
        os.close(self._memory)


async def _run(message: dict[str, Any], broken: Mapping[str, str], pipe: int, memory: int, server: ForkServer) -> None:
    """Load the pages of a request, run its checks, and write their events."""
    try:
        pages = [page for page in map(Path, message["pages"]) if str(page) not in broken]
        unavailable = [Unavailable(Path(page).name.partition(".")[0], why) for page, why in broken.items()]
        engine, pool = _engine(pages, unavailable, memory, server)
        engine.scheduler.start()
        request = read(json.dumps(message["request"]).encode(), ChecksRequest)
        requested = Requested.of(engine, request)
        limits = Limits(math.inf, op_s=engine.check_op_s).within(request.budget_s)
        async with aclosing(requested.events(engine, limits)) as events:
            async for event in events:
                _write(pipe, event)
        await pool.close()
        remove_temporary(engine, Settings())
    except (PullbackError, CannotStart) as error:
        problem = error if isinstance(error, PullbackError) else Unprocessable(str(error))
        _write(pipe, {"event": "error", "problem": problem.document(PATH)})


def _engine(
    pages: list[Path], unavailable: list[Unavailable], memory: int, server: ForkServer
) -> tuple[Engine, CheckPool]:
    """Return an engine with the ops of these pages and graphs, if there are any, else with those of a service here.

    It notes the page that it imports in ``memory``. Checks run in forks by ``server``, one for each core.
    """
    settings = Settings()
    own = len(os.sched_getaffinity(0)) if "check_processes" not in settings.model_fields_set else 0
    count = own or max(1, settings.check_processes)
    alone = {"check_processes": 0, "jobs": 0, "metrics": False, "keys_file": None, "tls_cert": None, "tls_key": None}
    settings = settings.model_copy(update=alone)
    logging.config.dictConfig(logging_config(settings.log))
    share_cores(1, 1 + count)

    def load(settings: Settings) -> Registry:
        if not pages and not unavailable:
            return registered(settings)
        found = registry_of(pages, lambda page: journal.note(memory, str(page)))
        return replace(found, unavailable=(*found.unavailable, *unavailable))

    # Each unavailable page is in the first event.
    logging.disable(logging.WARNING)
    engine, _ = build(settings, load)
    logging.disable(logging.NOTSET)
    journal.clear(memory)
    pool = CheckPool(
        Setup(settings, None, pages=tuple(pages), processes=1 + count), count, settings.process_memory_mb, Forks(server)
    )
    return replace(engine, check_pool=pool), pool


def _write(pipe: int, event: dict[str, Any]) -> None:
    line = memoryview(dumps(spell_nonfinite(event)) + b"\n")
    while line:
        line = line[os.write(pipe, line) :]
