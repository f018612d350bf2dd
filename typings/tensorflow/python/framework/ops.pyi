"""``tensorflow.python.framework.ops``, private: eager tensors that share memory with NumPy; the gradient registry."""

from collections.abc import KeysView
from typing import Any

from numpy.typing import NDArray
from tensorflow import Tensor

class EagerTensor(Tensor):
    def __init__(self, value: NDArray[Any], device: str | None, dtype: int | None) -> None: ...
    def _numpy(self) -> NDArray[Any]: ...

class _Registry:
    _registry: dict[str, Any]

    def list(self) -> KeysView[str]: ...
    def register(self, candidate: object, name: str) -> None: ...

gradient_registry: _Registry
