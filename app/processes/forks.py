"""Copies of this process, and processes that end with their parent."""

import ctypes
import os
import select
import signal
import subprocess
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import NoReturn

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that stop a service, or start its workers anew."""
BROKEN = 70
"""The exit status after an internal error of a process, not of an op: ``EX_SOFTWARE`` of <sysexits.h>."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # <linux/prctl.h>


def fork() -> int:
    """Fork this process: return the id of the copy, and 0 in the copy."""
    with warnings.catch_warnings():
        # Python 3.12 warns of the threads that libraries have started on import; they hold no lock that a copy needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Fork:
    """A copy of this process, with the methods of ``subprocess.Popen`` that end it.

    ``sentinel`` is a descriptor that is readable once it has ended, until ``poll`` has returned its exit code.
    """

    def __init__(self, pid: int) -> None:
        """Take the id that ``fork`` has returned."""
        self.pid, self.sentinel = pid, os.pidfd_open(pid)
        self.returncode: int | None = None
        # Any thread may end it, and the system tells only one of them that it has ended.
        self._waiting = threading.RLock()

    def poll(self) -> int | None:
        """Return the exit code, ``None`` while it runs."""
        with self._waiting:
            if self.returncode is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
                os.close(self.sentinel)
                self.returncode = os.waitstatus_to_exitcode(ended[1])
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raise ``subprocess.TimeoutExpired`` if it still runs after so many seconds."""
        if (known := self.poll()) is not None:
            return known
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:  # another thread has seen its end since
            return self.wait()
        try:
            ended, _, _ = select.select([pidfd], [], [], timeout)
        finally:
            os.close(pidfd)
        if not ended:
            raise subprocess.TimeoutExpired("fork", timeout or 0.0)
        return self.wait()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with self._waiting:
            if self.poll() is None:
                os.kill(self.pid, number)


def start_copy(name: str, run: Callable[[], int | None], at_parents_death: signal.Signals = signal.SIGKILL) -> Fork:
    """Start a copy of this process that calls ``run``, and exits with the status that this returns, or with 0.

    ``ps`` and ``top`` show the first 15 bytes of its ``name``. The copy gets the signal when this process ends, and
    handles the signals that stop a service as a new process does. If ``run`` raises an exception, the copy prints it
    and exits with ``BROKEN``. Raises ``OSError`` if there can be no copy.
    """
    parent = os.getpid()
    # A signal that the copy gets before it has reset the handlers waits: these are of this process.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        if not (pid := fork()):
            _run_copy(name, run, parent, at_parents_death)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    try:
        return Fork(pid)
    except OSError:  # no descriptor is left
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _run_copy(name: str, run: Callable[[], int | None], parent: int, at_parents_death: signal.Signals) -> NoReturn:
    status = BROKEN
    try:
        signal_at_parents_death(at_parents_death)
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())
        for number in STOPS:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        # It may have ended before.
        status = (run() or 0) if os.getppid() == parent else 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else BROKEN
    except KeyboardInterrupt:
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it raises, it must not go on as a second parent
        traceback.print_exc()
    finally:
        os._exit(status)


def signal_at_parents_death(number: signal.Signals) -> None:
    """Let the kernel send a signal to this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def ending_of(status: int | None) -> str:
    """Return what a process has ended with, from its exit code as ``os.waitstatus_to_exitcode`` returns it."""
    if status is None:
        return "an unknown status"
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
