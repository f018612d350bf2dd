"""``tensorflow.python.ops.gen_math_ops``, private: the functions that run kernels of mathematics."""

from typing import Any

from tensorflow import Tensor

def sqrt(x: Any, name: str | None = None) -> Tensor: ...
