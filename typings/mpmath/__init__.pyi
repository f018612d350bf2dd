"""A stub of the part of mpmath 1.4 that this project uses; mpmath ships none.

Written by hand. The functions of a context take and return its numbers and plain ones, so they are not listed.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

class MPContext:
    dps: int
    def workdps(self, n: int) -> AbstractContextManager[None]: ...
    def diff(self, f: Callable[..., Any], x: Any, n: int = 1) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

mp: MPContext
