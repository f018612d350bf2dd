"""Python functions that TensorFlow calls from a graph: ``tf.py_function`` and ``tf.numpy_function``.

TensorFlow converts the traceback of their exceptions to UTF-8 without a check: one lone surrogate in a message ends the
process with a segmentation fault.
"""

import traceback
from collections.abc import Callable
from typing import Any

# Private, because no public API wraps the calls. `script_ops` has one registry with all functions.
from tensorflow.python.ops import script_ops

# TensorFlow reports these as invalid arguments, and any other exception as an unknown error.
INVALID = (ValueError, TypeError)


def install() -> None:
    """Make the exceptions of Python functions safe for TensorFlow; call this once, when the service starts."""
    registry: Any = script_ops.FuncRegistry
    if not hasattr(registry.__call__, "__wrapped__"):
        registry.__call__ = _guarded(registry.__call__)


def _guarded(call: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any) -> Any:
        try:
            return call(*args)
        except BaseException as error:
            text = "".join(traceback.format_exception(error))
            if text.isascii() or text.encode(errors="ignore").decode() == text:
                raise
            kind = ValueError if isinstance(error, INVALID) else RuntimeError
            message = str(error).encode(errors="backslashreplace").decode()
        # Raised outside the block above: inside it, the first error would become the context and be converted too.
        raise kind(message)

    guarded.__wrapped__ = call  # pyright: ignore[reportFunctionMemberAccess] - marks that the guard is installed
    return guarded
