"""``tensorflow.python.ops.resource_variable_ops``, private: variables, and what observes their reads."""

from typing import Any

def variable_accessed(variable: Any) -> None: ...
