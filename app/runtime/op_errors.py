"""Conversion of exceptions from an op to service errors: the op rejected its input, or the op failed."""

import logging
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import tensorflow as tf

from app.errors import DeadlinePassed, Entry, OpFailed, Postponed, PullbackError, Unprocessable, wrong
from app.runtime.messages import XLA, message_of, node_of, text_of
from app.runtime.page_state import variable_fault_in
from app.runtime.repairs.python_gradients import IN_NUMPY, NAMED
from app.runtime.source_lines import author_line
from ops import OpFault

log = logging.getLogger("pullback")

_NO_KERNEL = re.compile(
    r"Could not find device for node|No registered '\w+' OpKernel for (?!XLA)|No OpKernel was registered to support"
    r"|(?:of \w+ is|DataType \w+) not in (?:the )?list of allowed value"
)
RECOMPUTE = "take recompute of pullback.ops, which has every order"
# What to change in an op, for errors of TensorFlow that do not say it; it replaces a message that adds nothing.
_ADVICE = (
    (
        re.compile(r"recompute_grad tried to transpose"),
        f"tf.recompute_grad has the first order alone: {RECOMPUTE}",
    ),
    (
        _NO_KERNEL,
        'TensorFlow has no kernel for this dtype: declare dtypes=("float32", "float64") on the slots, or those it has',
    ),
    (
        re.compile(r"as a Python `?bool`? is not allowed"),
        "a condition on a tensor needs tf.where or tf.cond, not if, and or or",
    ),
    (
        re.compile(r"Iterating over a symbolic"),
        "a loop over a tensor needs tf.map_fn, tf.scan or tf.while_loop, not for",
    ),
    (
        re.compile(r"Cannot convert a symbolic|has no attribute 'numpy'|NumPy call .*not supported"),
        "a graph has no values: use functions of TensorFlow, not of NumPy",
    ),
)
_NO_XLA_KERNEL = re.compile(r"No registered '(\w+)' OpKernel for XLA")
_NOT_A_TENSOR = re.compile(r"'(int|float|bool|list|str|numpy\.ndarray|ndarray)' object has no attribute '\w+'")
_LACKS_GRADIENT = re.compile(
    r"No gradient defined for operation.*\(op type: (\w+)\)|no entry for: (\w+)"
    rf"|{NAMED}({'|'.join(IN_NUMPY[::-1])})"
)
NO_GRADIENT = "TensorFlow has no gradient of"
"""What the error says of an operation without one; its type follows."""
_NO_GRADIENT_CURE = (
    "write it, with custom_gradient around the call, or with register_gradient for a kernel of yours; or declare the "
    "inputs that lead there differentiable=False, or take tf.stop_gradient of what it returns"
)
_ARITY = re.compile(
    r"(?<!\w)(\w++|<lambda>)\(\) (takes .* positional arguments? but .* given|missing \d+ required positional [^\n]*)"
)
_COUNT = re.compile(r"expected to return (\d+) .*but returned (\d+)|Num gradients (\d+).*num inputs (\d+)", re.DOTALL)
_SHAPE = re.compile(r"Original input shape: (\(.*?\))\.\s+Calculated input gradient shape: (\(.*?\))")


Call: TypeAlias = Callable[[], object]


_LEVEL = ContextVar("level", default=logging.WARNING)


@contextmanager
def expected_errors() -> Generator[None]:
    """Inside this block, an op may fail without a warning in the log."""
    before = _LEVEL.set(logging.DEBUG)
    try:
        yield
    finally:
        _LEVEL.reset(before)


@contextmanager
def op_errors(op: str) -> Generator[None]:
    """Inside this block, raise the ``converted`` errors of an op."""
    try:
        yield
    except (PullbackError, Postponed, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the op author's code may raise anything, or exit
        # A failed trace is kept, and the traceback would keep the tensors of the request alive.
        raise converted(op, error) from error.with_traceback(None)


def converted(op: str, error: BaseException, simpler: Call | None = None, node: str = "") -> PullbackError:
    """Return ``Unprocessable`` if ``op`` has rejected its input values, and ``OpFailed`` for other exceptions.

    ``simpler`` is a call with fewer pullbacks, if there is one: where TensorFlow reports an invalid argument and that
    succeeds, the op's gradient is at fault, not the caller's input. A cancelled computation becomes ``DeadlinePassed``,
    and a graph that XLA cannot compile ``Unprocessable`` for the mode. ``node`` is the node of a graph that has raised
    the error, if the error does not name it.
    """
    text, node = text_of(error), node_of(error) or node
    error = variable_fault_in(error) or error
    subject, prefix = (f"op {op}: {node}", f"{node}: ") if node else (f"op {op}", "")
    match error:
        case OpFault():
            entry = Entry((op, error.slot), str(error), error.expected, error.got)
            return OpFailed(f"op {op}: {error}", entry, where=error.where or author_line(error))
        case tf.errors.CancelledError() | tf.errors.DeadlineExceededError():
            return DeadlinePassed("the computation was cancelled at its deadline")
        # Not where a kernel is missing: the list of kernels that follows names XLA's devices.
        case tf.errors.OpError() if XLA.search(text) and _NO_KERNEL.search(text) is None:
            log.log(_LEVEL.get(), "op %s does not compile with XLA", op, exc_info=error)
            kernel = _NO_XLA_KERNEL.search(text)
            message = f"XLA has no kernel for {kernel[1]}" if kernel else message_of(error)
            return wrong(("mode",), f"{subject}: {message}", expected="graph, eager or v1", got="xla")
        case tf.errors.InvalidArgumentError() if simpler is None and _NO_KERNEL.search(text) is None:
            message = message_of(error)
            expected, got = "values that the op accepts", "values that it rejected"
            entry = Entry(("inputs",), f"{prefix}{message}", expected, got)
            return Unprocessable(f"{subject} rejected its input: {message}", entry)
        case tf.errors.InvalidArgumentError() if simpler is not None and _NO_KERNEL.search(text) is None:
            try:
                simpler()
            except (Unprocessable, OpFailed, DeadlinePassed) as explanation:
                return explanation
            except PullbackError:
                pass  # the simpler call could not run
        case _:
            pass
    return _failed(op, error, text, node)


def _failed(op: str, error: BaseException, text: str, node: str) -> OpFailed:
    subject, prefix = (f"op {op}: {node}", f"{node}: ") if node else (f"op {op}", "")
    log.log(_LEVEL.get(), "op %s failed", op, exc_info=error)
    if known := _known_fault(text):
        slot, expected, got = known
        message = f"wrong {slot}: expected {expected}, got {got}"
        if missing := _LACKS_GRADIENT.search(text):
            kind = missing[missing.lastindex or 0]
            call = "that is tf.numpy_function; " if kind in IN_NUMPY else ""
            message = f"{NO_GRADIENT} {kind}: {call}{_NO_GRADIENT_CURE}"
        entry = Entry((op, slot), f"{prefix}{message}", expected, got)
        return OpFailed(f"{subject}: {message}", entry, where=author_line(error))
    kind, message = type(error).__name__, message_of(error)
    for pattern, advice in _ADVICE:
        if pattern.search(text):
            message = advice if pattern is _NO_KERNEL else f"{advice} ({message})"
            break
    entry = Entry((op, kind), f"{prefix}{message}", expected="no exception", got=kind)
    return OpFailed(f"{subject} failed: {message}", entry, where=author_line(error))


def _known_fault(text: str) -> tuple[str, str, str] | None:
    """Return the slot, the expected and the actual value if TensorFlow's message shows a common fault of gradients."""
    returned = "return value of a gradient function"
    if match := _LACKS_GRADIENT.search(text):
        kind = match[match.lastindex or 0]
        return f"gradient of {kind}", f"a gradient registered for op type {kind}", "none"
    if match := _NOT_A_TENSOR.search(text):
        return returned, "a tensor, or None", f"a Python {match[1]}"
    if match := _ARITY.search(text):
        expected = "one for each tensor in the call: a gradient gets one for each output, differentiable or not"
        return f"arguments of {match[1]}", expected, match[2]
    if match := _SHAPE.search(text):
        return returned, f"shape {match[1]}", f"shape {match[2]}"
    if match := _COUNT.search(text):
        # A traced custom_gradient includes its outputs in both counts; the difference is what the author sees.
        wanted, actual = (match[1], match[2]) if match[1] else (match[4], match[3])
        surplus = int(actual) - int(wanted)
        return returned, "one gradient for each input", f"{abs(surplus)} too {'many' if surplus > 0 else 'few'}"
    return None
