"""The part of ``tf.test`` in use."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

def compute_gradient(
    f: Callable[..., Any], x: Sequence[Any], delta: float | None = None
) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]: ...
def gpu_device_name() -> str: ...
def is_built_with_cuda() -> bool: ...
