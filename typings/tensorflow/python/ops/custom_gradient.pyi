"""``tensorflow.python.ops.custom_gradient``, private: what calls functions with gradients of their own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

def _eager_mode_decorator(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any: ...
