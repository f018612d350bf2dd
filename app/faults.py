"""What an op raised, as the error that a caller sees: the op's own refusal, or its failure.

TensorFlow's errors come with node names, stack traces and files; what leaves here is their last line of text.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from app.errors import Entry, OpFailed, PullbackError, Unprocessable, clip
from ops import GradientFault

log = logging.getLogger("pullback")

_NODE = re.compile(r"\{\{[^}]*\}\}|\[\[[^\]]*\]\]|\[Op:[^\]]*\]")
_FILE = re.compile(r"(?:[\w.~-]*/)+[\w.-]+(?::\d+)?|File \"[^\"]*\", line \d+")
_INT_FOR_TENSOR = re.compile(r"'(int|float|bool|list|str|numpy\.ndarray|ndarray)' object has no attribute '\w+'")
_NO_GRADIENT = re.compile(r"(?:No gradient defined for operation.*\(op type: (\w+)\)|no entry for: (\w+))")
_ARITY = re.compile(r"(\w+)\(\) (takes .* positional arguments? but .* given|missing \d+ required positional .*)")
_COUNT = re.compile(r"(?:Num gradients (\d+).* num inputs (\d+)|expected to return (\d+).*, but returned (\d+))")


@contextmanager
def op_errors(op: str) -> Iterator[None]:
    """Turn what ``op`` raises into ``Unprocessable`` (its own check refused the values) or ``OpFailed``."""
    try:
        yield
    except PullbackError:
        raise
    except tf.errors.InvalidArgumentError as error:
        message = _message(error)
        entry = Entry(("inputs",), message, expected="values that the op accepts", got="values that it refused")
        raise Unprocessable(f"op {op} refused its input: {message}", entry) from error
    except GradientFault as error:
        raise OpFailed(f"op {op}: {error}", Entry((op, error.slot), str(error), error.expected, error.got)) from error
    except Exception as error:
        log.warning("op %s failed", op, exc_info=True)
        slot, expected, got = _diagnosis(error)
        raise OpFailed(
            f"op {op} failed: {_message(error)}", Entry((op, slot), _message(error), expected, got)
        ) from error


def _diagnosis(error: Exception) -> tuple[str, str, str]:
    """Return the slot, what was expected there and what came, for the classic mistakes; else the error itself."""
    text = str(error)
    if found := _NO_GRADIENT.search(text):
        kind = found[1] or found[2]
        return f"gradient of {kind}", f"a gradient registered for op type {kind}", "none"
    if found := _INT_FOR_TENSOR.search(text):
        return "what a gradient function returned", "a tensor, or None", f"a Python {found[1]}"
    if found := _ARITY.search(text):
        return f"arguments of {found[1]}", "(op, one cotangent for each output)", found[2]
    if found := _COUNT.search(text):
        got, wanted = (found[1], found[2]) if found[1] else (found[4], found[3])
        return "what a gradient function returned", f"{wanted} gradients, one for each input", got
    return type(error).__name__, "no error", clip(_message(error), 200)


def _message(error: Exception) -> str:
    """Return the last line that says something, without nodes, files or the Python class of the error."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    lines = [_FILE.sub("…", _NODE.sub("", line)).strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(("Traceback", "Detected at", "^", "File", "Node"))]
    return clip(said[-1] if said else type(error).__name__, 300)
