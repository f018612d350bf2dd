from collections.abc import Callable
from typing import Any

_pfor_converter_registry: dict[str, Callable[[Any], Any]]

def wrap(tensor: Any, is_stacked: bool = ..., is_sparse_stacked: bool = ...) -> Any: ...
