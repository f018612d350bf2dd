"""The standard files of a process: its input, output and errors, which its parent may have closed."""

import os
import sys

NUMBERS = (0, 1, 2)


def open_standard_files() -> None:
    """Open the null device in place of each standard file that is closed.

    Otherwise the system gives its number to the next file or socket that the process opens, and what is written to
    the log goes there.
    """
    for number in NUMBERS:
        try:
            os.fstat(number)
        except OSError:
            # The system returns the lowest free number: the lower ones are open.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    # Python has none where the file was closed when it started.
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - a descriptor, for the whole process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
