"""``tensorflow.python.eager.record``, private: records operations on the tapes and the accumulators of a thread."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tensorflow import IndexedSlices, Tensor

def could_possibly_record() -> bool: ...
def stop_recording() -> AbstractContextManager[None]: ...
def record_operation(
    op_type: str,
    output_tensors: Sequence[Tensor],
    input_tensors: Sequence[Tensor],
    backward_function: Callable[..., Sequence[Tensor | IndexedSlices | None]],
    forward_function: Callable[..., Any] | None = None,
) -> None: ...
