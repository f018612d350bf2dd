"""``tensorflow.python.ops.script_ops``, private: the registry of the Python functions that graphs call."""

from typing import Any

class FuncRegistry:
    def __call__(self, token: str, device: str, args: Any) -> Any: ...
