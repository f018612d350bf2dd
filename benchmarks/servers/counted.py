"""Pullback with a count of the Python functions that it calls: ``python -m benchmarks.servers.counted``.

SIGUSR1 starts the count, and SIGUSR2 ends it and writes it to the file that COUNT_FILE names. Only the thread of the
event loop is counted, not the one that writes the log.
"""

import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

from app.__main__ import main

calls = itertools.count()


def tick(frame: object, event: str, arg: object) -> None:
    """Count a call."""
    del frame, arg
    if event == "call":
        next(calls)


def start(number: int, frame: Any) -> None:
    """Start the count."""
    del number, frame
    sys.setprofile(tick)


def end(number: int, frame: Any) -> None:
    """End the count, and write it as a line."""
    del number, frame
    sys.setprofile(None)
    Path(os.environ["COUNT_FILE"]).write_text(f"{next(calls)}\n")


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, end)
    sys.exit(main())
