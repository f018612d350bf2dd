"""The conditions for serving an op: its examples are valid requests in its domain, and no symbol is a misspelt one."""

import ctypes
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import tensorflow as tf

from app.autodiff.binding import bind
from app.autodiff.derived import variant_of
from app.autodiff.point import Point
from app.errors import OpFailed, PullbackError
from app.runtime.calculus import forget_gradients
from app.runtime.page_state import StateFault, random_fault, refusing_new_variables, variable_fault
from app.tensors.json import decode
from ops import FLOATS, Example, Input, Op, Tensor, many, unbound_symbols
from pullback.service_process import SERVICE

log = logging.getLogger("pullback")

OWN = SERVICE / "ops"

# A service has limits; an op has none.
UNLIMITED = 1 << 62
# The sizes of the inputs' symbols in a trace: primes, so that a size of an output is seldom equal to one by chance.
SIZES, FREE = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61), (2, 3)
# The CPU time, and the time in all, that a trace may take that shows what an op uses besides its arguments. On a busy
# machine a trace waits for the CPU.
TRACED_S, WAITED_S = 3.0, 15.0


def admit(op: Op) -> None:
    """Raise ``ValueError`` if an op must not be served.

    That is if an example is not a valid request or not in the domain, if a function that is called for it raises, if
    the symbol of an output is a misspelt one of an input, or if the op or its gradient has state that is not declared;
    the service's own ops have none.
    """
    _ = op.own_parameters.digest  # here, because it takes a second of a gigabyte
    for example in op.examples:
        try:
            point = bind_example(op, example)
        except PullbackError as error:
            more = [f": expected {entry.expected}, got {entry.got}" for entry in error.entries[:1]]
            detail = error.detail if isinstance(error, OpFailed) else error.detail + "".join(more)
            raise ValueError(f"example {example.name!r}: {detail}") from error
        for slot in point.op.inputs:
            _check_domain(slot, example, point)
        if example is op.examples[0]:
            _check_symbols(point)
            if not (OWN / f"{op.name}.py").exists():  # traces take the time in which a hundred requests are answered
                _check_state(point)


def bind_example(op: Op, example: Example) -> Point:
    """Return the point of an example; raise ``PullbackError`` for one that is not a valid request."""
    return bind(
        variant_of(op, dict.fromkeys(example.inputs)),
        example.inputs,
        example.attrs,
        None,
        decode,
        mode="graph",
        device="",
        max_elements=UNLIMITED,
    )


def _check_domain(slot: Input, example: Example, point: Point) -> None:
    """Raise ``ValueError`` for a number of an example outside of the domain that its input declares; not for NaN."""
    x = point.inputs[slot.name]
    if not slot.has_domain or x.dtype == np.bool_:
        return
    low, high = slot.domain
    if point.spec.inputs.dtypes[slot.name] in FLOATS:
        # An example at an end of the domain may round to a number outside of it.
        with np.errstate(over="ignore"):
            low, high = (float(np.asarray(end, np.float64).astype(x.dtype)) for end in slot.domain)
    wide = np.asarray(x, np.float64)
    if (outside := wide[(wide < low) | (wide > high)]).size:
        expected, cure = f"numbers in the domain of {slot.name}, {slot.domain}", "widen the domain, or move the example"
        raise ValueError(f"example {example.name!r}: expected {expected}, got {outside[0]:g}; {cure}")


def _check_symbols(point: Point) -> None:
    """Raise ``ValueError`` if the size of an output's own symbol is always that of a symbol of the inputs.

    Such a symbol is for sizes that depend on values, or on other sizes by a formula. The sizes are those of traces.
    """
    op = point.op
    unbound = unbound_symbols(op.inputs, op.outputs, point.spec.sizes)
    if not unbound:
        return
    symbols = [size for slot in op.inputs for size in slot.shape if isinstance(size, str) and size != "..."]
    symbols = [symbol for symbol in dict.fromkeys(symbols) if symbol not in point.spec.sizes][: len(SIZES)]
    equal = {symbol: set(symbols) for symbol in unbound}
    sizes, traces = SIZES[: len(symbols)], 0
    for chosen in (sizes, SIZES[len(symbols) :: -1][: len(symbols)]):
        known = dict(zip(symbols, chosen, strict=True))
        with suppress(Exception, SystemExit):  # the author's code may refuse these sizes
            for symbol, size in _traced_sizes(point, known).items():
                equal[symbol] &= {other for other in symbols if known[other] == size}
            traces += 1
    for symbol, output in unbound.items() if traces else ():
        if equal[symbol]:
            similar = min(equal[symbol], key=symbols.index)
            got = f"{symbol!r}, which no input has and whose size is always that of {similar!r}"
            raise ValueError(f"output {output!r}: expected symbols of the inputs, got {got}; write {similar!r}")


def _check_state(point: Point) -> None:
    """Raise ``ValueError`` for an op that uses variables, or draws random numbers that differ in each call.

    Both the function and its gradient are traced, at an example; requests and checks report other errors of a trace. A
    trace that takes more CPU time than ``TRACED_S`` is ended where it can be: a request refuses variables too.
    """
    found, clock = list[BaseException | None](), list[int]()

    def examine() -> None:
        try:
            clock.append(time.pthread_getcpuclockid(threading.get_ident()))
            found.append(_state_fault(point))
        except BaseException as error:  # noqa: BLE001 - raised below
            found.append(error)

    thread = threading.Thread(target=examine, name="admission", daemon=True)
    thread.start()
    until = time.monotonic() + WAITED_S
    with suppress(OSError):  # the clock ends with its thread
        while thread.is_alive() and time.monotonic() < until:
            thread.join(0.05)
            if clock and time.clock_gettime(clock[0]) > TRACED_S:
                break
    if not found:
        message = "op %s: a trace took over %g s, so its state is not known yet; requests refuse variables"
        log.warning(message, point.op.name, TRACED_S)
        _end(thread)
    elif isinstance(found[0], StateFault):
        raise ValueError(str(found[0])) from found[0]
    elif found[0] is not None:
        raise found[0]


def _end(thread: threading.Thread) -> None:
    """Raise ``SystemExit`` in a thread; several times, because Python drops one that arrives in a destructor."""
    for _ in range(5):
        if thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
            thread.join(0.05)


def _state_fault(point: Point) -> StateFault | None:
    """Return what an op's function or gradient uses and does not declare, in a trace at an example."""
    slots = point.op.inputs
    specs = [tf.TensorSpec(point.inputs[slot.name].shape, point.spec.inputs.dtypes[slot.name]) for slot in slots]

    def examined(*xs: Tensor) -> None:
        with refusing_new_variables(), suppress(Exception, SystemExit):
            floats, ys = [[x for x in each if x.dtype.is_floating] for each in (xs, _forward(point, xs))]
            tf.gradients(ys, floats)

    try:
        with refusing_new_variables():  # here for those that a page makes outside of the graph
            graph = tf.function(examined, input_signature=specs, autograph=False).get_concrete_function().graph
    except StateFault as fault:
        return fault
    fault = variable_fault(graph) or random_fault(graph)
    forget_gradients(graph)
    return fault


def _forward(point: Point, xs: Sequence[Tensor]) -> list[Tensor]:
    """Return the results of the function of a point's op for tensors of a graph."""
    numbers = zip(point.spec.attrs.number_names(), map(tf.constant, point.spec.numbers), strict=True)
    return many(point.op.function(*xs, **dict(point.spec.static), **dict(numbers)))


def _traced_sizes(point: Point, known: Mapping[str, int]) -> dict[str, int | None]:
    """Return the sizes of the outputs' own symbols in a trace of forward, ``None`` for those that depend on values."""
    op, sizes = point.op, {**point.spec.sizes, **known}
    specs = [
        tf.TensorSpec(
            [n for s in slot.shape for n in ([s] if isinstance(s, int) else FREE if s == "..." else [sizes[s]])],
            point.spec.inputs.dtypes[slot.name],
        )
        for slot in op.inputs
    ]

    def forward(*xs: Tensor) -> list[Tensor]:
        return _forward(point, xs)

    ys = tf.function(forward, input_signature=specs, autograph=False).get_concrete_function().outputs
    found = dict[str, int | None]()
    for slot, y in zip(op.outputs, ys, strict=True):
        for i, size in enumerate(slot.shape):
            if size in unbound_symbols(op.inputs, op.outputs, point.spec.sizes):
                found[str(size)] = y.shape[i - len(slot.shape) if "..." in slot.shape[:i] else i]
    return found
