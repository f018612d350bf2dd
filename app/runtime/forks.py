"""Copies of this process, and processes that end with their parent."""

import ctypes
import os
import select
import signal
import subprocess
import threading
import warnings

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def fork() -> int:
    """Fork this process: return the id of the copy, and 0 in the copy."""
    with warnings.catch_warnings():
        # Python 3.12 warns of the threads that libraries have started on import; they hold no lock that a copy needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Fork:
    """A copy of this process, with the methods of ``subprocess.Popen`` that end it."""

    def __init__(self, pid: int) -> None:
        """Take the id that ``fork`` has returned."""
        self.pid = pid
        self.returncode: int | None = None
        # Any thread may end it, and the system tells only one of them that it has ended.
        self._waiting = threading.RLock()

    def poll(self) -> int | None:
        """Return the exit code, ``None`` while it runs."""
        with self._waiting:
            if self.returncode is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
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
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with self._waiting:
            if self.poll() is None:
                os.kill(self.pid, number)


def signal_at_parents_death(number: signal.Signals) -> None:
    """Let the kernel send a signal to this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
