"""``tensorflow.python.framework.ops``, private: eager tensors that may share memory with NumPy."""

from typing import Any

from numpy.typing import NDArray
from tensorflow import Tensor

class EagerTensor(Tensor):
    def __init__(self, value: NDArray[Any], device: str | None, dtype: int | None) -> None: ...
    def _numpy(self) -> NDArray[Any]: ...
