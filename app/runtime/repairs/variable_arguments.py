"""Variables that a page reads in eager mode: arguments of ``tf.custom_gradient`` are tensors, and others are refused.

In a graph, TensorFlow makes tensors of arguments that are variables, before it calls the function. In eager mode it
passes the variables, and a gradient function would read them when the values of the request are no longer in place. A
graph that reads a variable elsewhere captures it, which is refused; eager mode captures nothing.
"""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import tensorflow as tf

# Private, because nothing public sees the arguments of eager custom gradients, or reads of variables that are not
# trained.
from tensorflow.python.ops import custom_gradient, resource_variable_ops

_reading = threading.local()


def install() -> None:
    """Convert arguments, and observe reads; call this before any program runs."""
    if not hasattr(resource_variable_ops.variable_accessed, "__wrapped__"):
        module: Any = custom_gradient
        module._eager_mode_decorator = _with_tensors(module._eager_mode_decorator)
        resource_variable_ops.variable_accessed = _observed(resource_variable_ops.variable_accessed)


@contextmanager
def observing_reads(read: Callable[[Any], None]) -> Generator[None]:
    """Inside this block, call ``read`` with each variable that this thread reads."""
    before, _reading.by = getattr(_reading, "by", None), read
    try:
        yield
    finally:
        _reading.by = before


def _with_tensors(decorate: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(decorate)
    def decorated(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return decorate(f, tf.nest.map_structure(_tensor, args), kwargs)

    return decorated


def _tensor(value: Any) -> Any:
    """Return the tensor of a variable of TensorFlow or Keras; anything else as it is."""
    return tf.convert_to_tensor(value) if hasattr(value, "assign") else value


def _observed(variable_accessed: Callable[[Any], None]) -> Callable[[Any], None]:
    @wraps(variable_accessed)
    def accessed(variable: Any) -> None:
        by: Callable[[Any], None] | None = getattr(_reading, "by", None)
        if by is not None:
            by(variable)
        variable_accessed(variable)

    return accessed
