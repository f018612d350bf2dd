"""Ops that sleep, spin, exit, raise, crash and allocate. Each is a plug-in: a file with ``OP = OPS[name]``.

Most do so in a kernel, some when they are traced. For x < 0, they behave.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor

OPS: dict[str, Op] = {}
HUGE = 100 << 30
LONG_MESSAGE = 40_000
SPIN_S = 5.0


def _op(name: str, function: Callable[[Tensor], Tensor]) -> None:
    OPS[name] = Op(
        name=name,
        summary="x, or something evil",
        doc="y = x.",
        function=function,
        reference=np.asarray,
        inputs=(Input("x", shape=()),),
        outputs=(Output("y", shape=(), differentiable=False),),
        mechanism="symbolic_gradient",
        source="a test",
        examples=(Example("harmless", {"x": -1.0}),),
    )


def _in_kernel(name: str, act: Callable[[Array], None], call: Callable[..., Tensor] = tf.numpy_function) -> None:
    """Register the op whose kernel calls ``act``."""

    def kernel(x: Array) -> Array:
        if x >= 0:
            act(x)
        return x

    def forward(x: Tensor) -> Tensor:
        return tf.ensure_shape(call(kernel, [x], x.dtype), [])

    _op(name, forward)


def _when_traced(name: str, act: Callable[[], None]) -> None:
    """Register the op whose function calls ``act``."""

    def forward(x: Tensor) -> Tensor:
        act()
        return tf.identity(x)

    _op(name, forward)


def _spin(x: Array) -> None:
    end = time.monotonic() + SPIN_S
    while time.monotonic() < end:
        pass


def _exit(x: Array) -> None:
    sys.exit("bye")


def _exit_at_once(x: Array) -> None:
    os._exit(7)


def _raise_surrogate(x: Array) -> None:
    raise ValueError("\ud800 is no text \udfff")


def _raise_long(x: Array) -> None:
    raise ValueError("a" * LONG_MESSAGE)


def _raise_nested(x: Array) -> None:
    raise ValueError("{{[[" * (LONG_MESSAGE // 4))


def _raise(x: Array) -> None:
    raise ValueError("x is too evil")


def _crash(x: Array) -> None:
    ctypes.string_at(0)


def _allocate(x: Array) -> None:
    np.ones(HUGE, np.uint8)


def _interrupt(x: Array) -> None:
    raise KeyboardInterrupt


def _trace_exit() -> None:
    sys.exit(3)


def _trace_surrogate() -> None:
    raise ValueError("\udc80")


def _trace_long() -> None:
    raise ValueError("/a " * (LONG_MESSAGE // 3))


def _allocated(x: Tensor) -> Tensor:
    """y = x, after a kernel of TensorFlow has asked for 100 GB if x >= 0."""
    size = tf.where(x < 0, tf.constant(1, tf.int64), tf.constant(HUGE, tf.int64))
    return x + 0 * tf.cast(tf.fill([size], tf.constant(0, tf.uint8))[0], x.dtype)


_in_kernel("evil_sleep", lambda x: time.sleep(float(x)))
_in_kernel("evil_spin", _spin)
_in_kernel("evil_exit", _exit)
_in_kernel("evil_exit_at_once", _exit_at_once)
_in_kernel("evil_surrogate", _raise_surrogate)
_in_kernel("evil_surrogate_py", _raise_surrogate, tf.py_function)
_in_kernel("evil_long", _raise_long)
_in_kernel("evil_nested", _raise_nested)
_in_kernel("evil_traceback", _raise, tf.py_function)
_in_kernel("evil_crash", _crash)
_in_kernel("evil_numpy", _allocate)
_in_kernel("evil_interrupt", _interrupt)
_when_traced("evil_trace_exit", _trace_exit)
_when_traced("evil_trace_surrogate", _trace_surrogate)
_when_traced("evil_trace_long", _trace_long)
_op("evil_tensor", _allocated)
