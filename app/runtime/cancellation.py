"""Cancellation of long work.

A ``Checkpoint`` is called between chunks of long work; it raises when the caller no longer waits.
"""

from collections.abc import Callable
from typing import TypeAlias

Checkpoint: TypeAlias = Callable[[], None]
