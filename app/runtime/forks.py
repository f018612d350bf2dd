"""Copies of this process, and processes that end with their parent."""

import ctypes
import os
import signal
import warnings

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def fork() -> int:
    """Fork this process: return the id of the copy, and 0 in the copy."""
    with warnings.catch_warnings():
        # Python 3.12 warns of the threads that libraries have started on import; they hold no lock that a copy needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def signal_at_parents_death(number: signal.Signals) -> None:
    """Let the kernel send a signal to this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
