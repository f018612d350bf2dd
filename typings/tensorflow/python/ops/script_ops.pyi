"""``tensorflow.python.ops.script_ops``, private: the Python functions that graphs call, and their registry."""

from typing import Any

class FuncRegistry:
    def __call__(self, token: str, device: str, args: Any) -> Any: ...

def py_func_common(func: Any, inp: Any, Tout: Any, stateful: bool = True, name: str | None = None) -> Any: ...
