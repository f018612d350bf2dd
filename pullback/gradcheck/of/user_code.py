"""The code of the user: calls that may not return, and what they raise."""

import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import numpy as np

from pullback.errors import TimedOut

T = TypeVar("T")


def within(limit_s: float | None, call: Callable[[], T]) -> T:
    """Return the result of a call on another thread, or on this one without a limit.

    Raises ``TimedOut`` after the limit; nothing can interrupt the call, whose thread ends with the process.
    """
    if limit_s is None:
        return call()
    found = Future[T]()

    def run() -> None:
        try:
            # NumPy would warn of what the errors say.
            with np.errstate(all="ignore"):
                found.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return found.result(limit_s)
    except TimeoutError:
        slow = "does it loop for ever, or wait for something? Raise --timeout if it is slow"
        raise TimedOut(f"no result within {limit_s:g} s: {slow}") from None


def told(error: BaseException) -> str:
    """Return an exception in a line, with the line of the user's file that raised it."""
    ours = Path(__file__).parents[2]
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((sys.prefix, sys.base_prefix, "<"))
        and ours not in Path(frame.filename).parents
    ]
    where = f", at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}: {str(error)[:500]}{where}"
