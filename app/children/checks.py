"""A process of checks: a fork that loads one op as the service has, runs its checks, and ends."""

import asyncio
import gc
import logging
import logging.config
import os
import resource
import signal
import threading
import time
from contextlib import aclosing, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import NoReturn

from app.errors import CannotStart, DeadlinePassed, InternalError, Overloaded, PullbackError
from app.execution.assembly import COLLECTED, build, registered, registry_of
from app.execution.engine import Engine
from app.execution.scheduler import CheckerInService
from app.gradcheck.report import Step
from app.processes.forks import BROKEN
from app.processes.messages import Began, Done, Found, Left, Message, Order, Planned, Ready, Setup
from app.processes.sources import is_code
from app.processes.steps import OpChecks
from app.runtime.cores import share_cores
from app.runtime.journal import JOURNAL
from app.runtime.source_lines import is_raised_by_author
from app.telemetry.line_writer import STDERR
from app.telemetry.log import logging_config
from app.telemetry.printed import SUBJECT
from pullback import findings

log = logging.getLogger("pullback")

MOST_LIKELY_TO_BE_KILLED = "1000"
# How long a step that is out of time may take to stop, between two kernels, so that the process can go on. The service
# waits for ``LATE_S``, which is longer than two of these.
SETTLE_S, TICK_S = 0.75, 0.01


def run_checks(connection: Connection, journal: int) -> None:
    """Run the check that the service orders on ``connection``, and exit this process, also when that closes.

    Each evaluation is noted in the file ``journal``.
    """
    come_last()
    child = _Child(connection)
    try:
        order: Order = connection.recv()
        logging.config.dictConfig(logging_config(order.setup.settings.log))
        # What TensorFlow logs of a failure to trace or to vectorize an op is in the findings.
        logging.getLogger("tensorflow").setLevel(logging.CRITICAL)
        if order.setup.sources is None:
            log.addFilter(_for_terminal)
        log.addFilter(_Once())
        SUBJECT.begin(f"op {order.job.op}")
        engine = _engine(order)
    except (EOFError, ConnectionError):
        _exit()
    except CannotStart as error:
        child.send(Done(Overloaded(f"the process of checks cannot start: {error}", retry_after_s=5)))
        os._exit(BROKEN)
    JOURNAL.keep_in(journal)
    asyncio.run(child.run(engine, order))


def come_last() -> None:
    """Let this process yield to the service, in time and in memory."""
    # A crash is reported; an image of gigabytes would fill a disk, and delay the report.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where memory runs out, the system should end this process, not the service.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(MOST_LIKELY_TO_BE_KILLED)
    # With autogroups, Linux schedules by session and ignores niceness across sessions; this process has its own.
    with suppress(OSError), open("/proc/self/autogroup", "w") as file:
        file.write(str(os.getpriority(os.PRIO_PROCESS, 0)))
    gc.set_threshold(COLLECTED)


def need_unchanged(setup: Setup) -> None:
    """Raise ``CannotStart`` if this process has read other files than the service."""
    now = setup.sources.changed() if setup.sources else []
    if changed := [name for name in now if is_code(name) and name not in setup.changing]:
        log.error("checks and jobs need a restart of the service: files have changed since: %s", ", ".join(changed))
        STDERR.flush()
        raise CannotStart(
            "files have changed since the service read them, which its log names; restart the service, or start it "
            "with pullback serve --reload (PULLBACK_RELOAD=1), which serves pages anew when they are saved"
        )


def _for_terminal(record: logging.LogRecord) -> bool:
    """Pass no stack trace of what TensorFlow raises: the findings say it, with the line of the page."""
    error = record.exc_info[1] if record.exc_info else None
    return record.levelno > logging.WARNING or error is None or is_raised_by_author(error)


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


def _engine(order: Order) -> Engine:
    """Return an engine with the ops that a check needs. Raises ``CannotStart`` if it cannot have them."""
    setup, page = order.setup, order.page
    share_cores(setup.settings.workers, setup.processes)
    # The service has logged these warnings already, such as those about unavailable ops.
    logging.disable(logging.WARNING)
    pages = setup.pages if page is None else (page,)
    engine, _ = build(setup.settings, (lambda _: registry_of(pages)) if pages else registered)
    logging.disable(logging.NOTSET)
    need_unchanged(setup)
    engine.scheduler.start()
    return engine


class _Child:
    """The process's side of the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message, from any thread."""
        try:
            with self._lock:
                self._connection.send(message)
        except OSError as error:
            # The service reads until the end, so either it has ended, or the op has closed the connection.
            log.warning("a process of checks cannot send what it has found: %s", error.strerror)
            STDERR.flush()
            os._exit(BROKEN)

    async def run(self, engine: Engine, order: Order) -> None:
        """Run a check, and exit."""
        # A thread, so that the process ends with the connection whatever it computes.
        threading.Thread(target=self._end_with_connection, name="end", daemon=True).start()
        self.send(Ready())
        error = await self._check(engine, order)
        SUBJECT.begin()  # what the op has printed is written before the service ends this process
        self.send(Done(error))
        _exit()

    def _end_with_connection(self) -> None:
        with suppress(EOFError, OSError):
            self._connection.recv()
        _exit()

    async def _check(self, engine: Engine, order: Order) -> PullbackError | None:
        """Run a check, and send what happens; return the error that ends it."""
        try:
            op = engine.op(order.job.op)
            report = await engine.scheduler.run(
                lambda checkpoint: order.job.report(engine.with_parameters(op, order.job)),
                queue="check",
                deadline=order.limits.until,
                owner=order.owner,
            )
            for i, step in enumerate(report.steps):
                step.publish = partial(self._publish, i)
            self.send(Planned(report.outline))
            await self._run_steps(engine, OpChecks(order.job, report, order.limits, order.owner))
        except DeadlinePassed:
            return None  # the service knows the time
        except PullbackError as error:
            return error
        except Exception:
            log.exception("the check of op %s broke off", order.job.op)
            return InternalError("the service failed; its log has the details")
        return None

    async def _run_steps(self, engine: Engine, checks: OpChecks) -> None:
        """Run the steps, until one does not stop in time: the next would only wait for it."""
        last, began = None, 0.0
        async with aclosing(CheckerInService(engine.scheduler).steps(checks)) as running:
            async for step in running:
                if last is not None:
                    self._leave(checks, last, began)
                    if not last.has_ended and not await _is_idle(engine):
                        return
                last, began = step, time.monotonic()
                JOURNAL.clear()
                self.send(Began(checks.report.steps.index(step)))
        if last is not None:
            self._leave(checks, last, began)

    def _leave(self, checks: OpChecks, step: Step, began: float) -> None:
        self.send(Left(checks.report.steps.index(step), step.has_ended, step.cure, time.monotonic() - began))

    def _publish(self, step: int, entry: findings.Check) -> None:
        self.send(Found(step, entry))


async def _is_idle(engine: Engine) -> bool:
    """Wait until nothing is computed, at most ``SETTLE_S``; return whether that is so."""
    until = time.monotonic() + SETTLE_S
    while not engine.scheduler.is_idle and time.monotonic() < until:
        await asyncio.sleep(TICK_S)
    return engine.scheduler.is_idle


def _exit() -> NoReturn:
    """End the process, without the threads of TensorFlow, which cannot be stopped."""
    STDERR.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # never reached
