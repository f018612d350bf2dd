"""``tensorflow.python.framework.op_callbacks``, private: functions that are called for each new operation."""

from collections.abc import Callable, Sequence
from typing import Any

from tensorflow import Tensor

def add_op_callback(callback_fn: Callable[..., Sequence[Tensor] | None]) -> None: ...
def remove_op_callback(op_callback: Callable[..., Any]) -> None: ...
