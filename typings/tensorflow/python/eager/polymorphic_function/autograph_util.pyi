"""``tensorflow.python.eager.polymorphic_function.autograph_util``, private: the Python of functions, with autograph."""

from collections.abc import Callable
from typing import Any

def py_func_from_autograph(python_func: Callable[..., Any], autograph_options: Any = None) -> Callable[..., Any]: ...
