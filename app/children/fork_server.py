"""The process that forks the processes of checks and of jobs: it imports TensorFlow, and runs nothing with it.

A process that runs ops cannot be forked, because the threads of TensorFlow do not exist in the copy. A new interpreter
takes seconds of CPU to import TensorFlow. So the service starts this process once, as a copy of itself before it runs
any op, and each process of checks is a copy of this one: it is ready in milliseconds, shares the memory, loads the ops
and runs the checks. This process holds no socket and no file of the service but stderr. It ends, with its copies, as
soon as the service has ended.
"""

import gc
import os
import selectors
import signal
import socket
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import NoReturn

from app.children.checks import run_checks
from app.processes.check_process import HIDDEN, NICENESS, ForkServer
from app.processes.forks import BROKEN, STOPS, fork, signal_at_parents_death, start_copy
from app.processes.messages import FORK, FORK_FOR_JOBS, KILL
from app.telemetry.printed import Prints

MAX_MESSAGE, DESCRIPTORS = 64, 3
# It answers requests, as the whole application does, which is made of this module.
JOBS = "app.children.jobs"


def start_as_copy(niceness: int = NICENESS) -> ForkServer:
    """Start the fork server as a copy of this process, which has imported TensorFlow and runs nothing with it yet.

    Call this before an event loop runs. Raises ``OSError`` if it cannot start.
    """
    control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def run() -> NoReturn:
        os.setsid()
        os.nice(niceness)
        for name in HIDDEN:
            os.environ.pop(name, None)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        kept = other.detach()
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        main(kept)

    with other:
        return ForkServer(start_copy("pullback checks", run), control)


def main(descriptor: int) -> NoReturn:
    """Fork a process for each ``FORK`` on the socket ``descriptor``, kill one for ``KILL PID``; end with the socket.

    ``FORK``, or ``FORK_FOR_JOBS``, comes with three descriptors: the connection of the new process, its journal, and a
    pipe for its process id and later its exit status.
    """
    # The service says when to stop, also where a signal goes to all of its processes.
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    # The collector of a copy must not traverse TensorFlow's half a million objects, nor copy the pages that they share.
    gc.collect()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    control, pipes = socket.socket(fileno=descriptor), dict[int, tuple[int, Prints]]()
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == woken:
                    os.read(woken, 1 << 16)
                    _reap(pipes)
                    continue
                message, descriptors, *_ = socket.recv_fds(control, MAX_MESSAGE, DESCRIPTORS)
                if message in (FORK, FORK_FOR_JOBS):
                    _add(message, descriptors, [descriptor, woken, wake, *(pipe for pipe, _ in pipes.values())], pipes)
                    continue
                for pid in [int(message.removeprefix(KILL))] if message else [*pipes]:
                    if pid in pipes:
                        _kill(pid)
                if not message:
                    # At once: a regular end takes longer, because libraries clean up.
                    os._exit(0)


def _add(kind: bytes, descriptors: list[int], others: list[int], pipes: dict[int, tuple[int, Prints]]) -> None:
    """Fork a process with these descriptors, without ``others``; where this fails, its pipe closes without an id."""
    try:
        connection, journal, pipe = descriptors
        pid, prints = _fork(kind, connection, journal, [*others, pipe])
    except (OSError, ValueError, RuntimeError):  # no process, memory, descriptor or thread is left
        traceback.print_exc()
    else:
        pipes[pid] = descriptors.pop(), prints
        _tell(pipe, pid)
    for descriptor in descriptors:
        os.close(descriptor)


def _kill(pid: int) -> None:
    """Kill a process and those that it has started, which are in its group unless they have left it."""
    with suppress(ProcessLookupError):  # the process has not made its group yet, or the whole group has ended
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _fork(kind: bytes, connection: int, journal: int, others: list[int]) -> tuple[int, Prints]:
    """Return the id of a copy of this process, which runs a check or jobs, and what it prints.

    The copy closes ``others``.
    """
    parent = os.getpid()
    with Prints() as prints:
        if pid := fork():
            return pid, prints
        try:
            signal_at_parents_death(signal.SIGKILL)
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            prints.enter()
            for descriptor in others:
                os.close(descriptor)
            if os.getppid() == parent:
                run = run_checks if kind == FORK else import_module(JOBS).run_jobs
                run(Connection(connection), journal)
        except BaseException:  # noqa: BLE001 - it must not go on as a second fork server
            traceback.print_exc()
        finally:
            os._exit(BROKEN)


def _reap(pipes: dict[int, tuple[int, Prints]]) -> None:
    """Report the status of each process that has ended, after what it has printed, and kill those that it started."""
    while pipes:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        _kill(ended.si_pid)  # before another process can have this id
        pid, status = os.waitpid(ended.si_pid, 0)
        pipe, prints = pipes.pop(pid)
        prints.wait()
        _tell(pipe, os.waitstatus_to_exitcode(status))
        os.close(pipe)


def _tell(pipe: int, number: int) -> None:
    """Write a number into a pipe, which has room for it."""
    with suppress(BrokenPipeError):  # the service has ended, or no longer wants to know
        os.write(pipe, b"%d\n" % number)
