"""What an op raised, as the error that a caller sees: the op's own refusal, or its failure.

TensorFlow's errors come with node names, stack traces and files; what leaves here is their last line of text.
"""

import logging
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager

import tensorflow as tf

from app.errors import DeadlinePassed, Entry, OpFailed, PullbackError, Unprocessable, clip, wrong
from ops import OpFault

log = logging.getLogger("pullback")

# What TensorFlow says when XLA cannot compile a graph; the first line of it says why.
_XLA = re.compile(r"tf2xla conversion failed|unsupported operations|compile_device_type|uncompilable|XLA_[CG]PU_JIT")
_CONVERSION = re.compile(
    r"tf2xla conversion failed while converting .*?\]\. |Run with TF_DUMP\S* and \S* to obtain.*?\. "
)
_NODE = re.compile(r"\{\{[^}]*\}\}|\[\[[^\]]*\]\]|\[Op:[^\]]*\]")
_FILE = re.compile(r"(?:[\w.~-]*/)+[\w.-]+(?::\d+)?|File \"[^\"]*\", line \d+")
_NOISE = ("Traceback", "Detected at", "^", "File", "Node", "<stack", "Stack trace", "Graph execution error")

_NOT_A_TENSOR = re.compile(r"'(int|float|bool|list|str|numpy\.ndarray|ndarray)' object has no attribute '\w+'")
_NO_GRADIENT = re.compile(r"No gradient defined for operation.*\(op type: (\w+)\)|no entry for: (\w+)")
_ARITY = re.compile(r"(\w+)\(\) (takes .* positional arguments? but .* given|missing \d+ required positional .*)")
_COUNT = re.compile(r"expected to return (\d+) .*but returned (\d+)|Num gradients (\d+).*num inputs (\d+)", re.DOTALL)
_SHAPE = re.compile(r"Original input shape: (\(.*?\))\.\s+Calculated input gradient shape: (\(.*?\))")


@contextmanager
def op_errors(op: str) -> Generator[None]:
    """Turn what ``op`` raises in this block into the error that ``op_error`` returns for it."""
    try:
        yield
    except (PullbackError, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - an author's code ran there, and may raise anything, or exit
        raise op_error(op, error) from error.with_traceback(None)


def op_error(op: str, error: BaseException, simpler: Callable[[], object] | None = None) -> PullbackError:
    """Return the error for what ``op`` raised: ``Unprocessable`` if its check refused the values, else ``OpFailed``.

    Where TensorFlow calls an argument invalid, ``simpler`` tells whose: if that work, the same but for a pullback,
    succeeds, the fault is not the caller's input but the op's gradient. Work that was cancelled is ``DeadlinePassed``;
    a graph that XLA cannot compile is ``Unprocessable``, about the mode.

    Raise it from the error without its traceback: a failed trace is kept, and the traceback would keep the tensors of
    the request that it failed for.
    """
    match error:
        case OpFault():
            return OpFailed(f"op {op}: {error}", Entry((op, error.slot), str(error), error.expected, error.got))
        case tf.errors.CancelledError() | tf.errors.DeadlineExceededError():
            return DeadlinePassed("the computation was cancelled at its deadline")
        case tf.errors.OpError() if _XLA.search(error.message):
            log.warning("op %s does not compile with XLA", op, exc_info=error)
            return wrong(("mode",), f"op {op}: {_message(error)}", expected="graph, eager or v1", got="xla")
        case tf.errors.InvalidArgumentError() if simpler is None:
            message = _message(error)
            entry = Entry(("inputs",), message, expected="values that the op accepts", got="values that it rejected")
            return Unprocessable(f"op {op} rejected its input: {message}", entry)
        case tf.errors.InvalidArgumentError():
            return _refusal(simpler) or _failed(op, error)
        case _:
            return _failed(op, error)


def _refusal(simpler: Callable[[], object] | None) -> PullbackError | None:
    try:
        if simpler is not None:
            simpler()
    except (Unprocessable, OpFailed, DeadlinePassed) as told:
        return told
    except PullbackError:
        return None  # no room to find out
    return None


def _failed(op: str, error: BaseException) -> OpFailed:
    log.warning("op %s failed", op, exc_info=error)
    if mistake := _mistake(str(error)):
        slot, expected, got = mistake
        message = f"wrong {slot}: expected {expected}, got {got}"
        return OpFailed(f"op {op}: {message}", Entry((op, slot), message, expected, got))
    kind, message = type(error).__name__, _message(error)
    return OpFailed(f"op {op} failed: {message}", Entry((op, kind), message, expected="no exception", got=kind))


def _mistake(text: str) -> tuple[str, str, str] | None:
    """Return the slot, what was expected there and what came, where TensorFlow's words tell a classic mistake."""
    returned = "return value of a gradient function"
    if found := _NO_GRADIENT.search(text):
        kind = found[1] or found[2]
        return f"gradient of {kind}", f"a gradient registered for op type {kind}", "none"
    if found := _NOT_A_TENSOR.search(text):
        return returned, "a tensor, or None", f"a Python {found[1]}"
    if found := _ARITY.search(text):
        return f"arguments of {found[1]}", "one for each tensor in the call", found[2]
    if found := _SHAPE.search(text):
        return returned, f"shape {found[1]}", f"shape {found[2]}"
    if found := _COUNT.search(text):
        # A traced custom_gradient counts its outputs in, on both sides: the difference is what the author sees.
        wanted, came = (found[1], found[2]) if found[1] else (found[4], found[3])
        return returned, "one gradient for each input", f"{abs(int(came) - int(wanted))} too {_more(came, wanted)}"
    return None


def _more(came: str, wanted: str) -> str:
    return "many" if int(came) > int(wanted) else "few"


def _message(error: BaseException) -> str:
    """Return what an error says, without nodes, files or stacks: its last line, where TensorFlow adds such things."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    lines = [_FILE.sub("…", _NODE.sub("", _CONVERSION.sub("", line))).strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(_NOISE)]
    if "Graph execution error" in text:
        said = said[-1:]
    elif _XLA.search(text):
        said = said[:1]
    return clip(" ".join(said) or type(error).__name__, 300)
