"""XLA computes what TensorFlow's kernels do, for each kernel of the table, under masks too, at both orders."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from app.autodiff.default_mode import default_mode
from app.runtime.arithmetic import KERNELS, OF_KERNELS_ALONE, is_arithmetic
from ops import Example, Input, Op, Output

DTYPES = (tf.float32, tf.float64)
NUMBERS = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -3.0, 10.0, -10.0, 1e3, -1e3, 1e-6, -1e-6)
# Kernels of XLA and of TensorFlow may be off by as much, where derivatives cancel: lgamma at 1 in float32, say.
RELATIVE, OF_LARGEST = 1e-3, 1e-5


def takes_numbers(kernel: str) -> bool:
    """Whether a kernel computes a number from one or two numbers of its own dtype."""
    signature = op_def_registry.get(kernel)
    if signature is None or len(signature.output_arg) != 1 or not 0 < len(signature.input_arg) < 3:
        return False
    args = [*signature.input_arg, *signature.output_arg]
    return all(arg.type_attr == "T" and not arg.number_attr for arg in args)


# These need other shapes, or have no kernel in XLA.
OTHERS = {"BatchMatMulV2", "BiasAdd", "BiasAddGrad", "InvGrad", "MatMul", "Unpack"}
COMPARED = sorted(kernel for kernel in KERNELS | OF_KERNELS_ALONE if takes_numbers(kernel) and kernel not in OTHERS)


def with_derivatives(kernel: str) -> Callable[..., list[tf.Tensor]]:
    """Return the kernel as a function that returns its value, masked in several ways, with two derivatives of each."""
    names = [arg.name for arg in op_def_registry.get(kernel).input_arg]

    def function(*xs):
        y = getattr(tf.raw_ops, kernel)(**dict(zip(names, xs, strict=True)))
        results = []
        for mask in (xs[0] == xs[0], xs[0] > 0, xs[-1] > 0.7, tf.abs(xs[0]) > np.inf):
            results.append(tf.where(mask, y, tf.zeros_like(y)))
            for _ in range(2):
                try:
                    gradients = tf.gradients(results[-1:], xs)
                except LookupError:
                    break
                results += [gradient for gradient in gradients if gradient is not None]
                if gradients[0] is None:
                    break
        return results

    return function


def differs(kernel: str, dtype: tf.DType, numbers: Sequence[float] = NUMBERS) -> bool | None:
    """Whether XLA computes something else; ``None`` if the derivatives need a kernel that is not in the table."""
    count = len(op_def_registry.get(kernel).input_arg)
    xs = [tf.constant(column, dtype) for column in zip(*product(numbers, repeat=count), strict=True)]
    function = with_derivatives(kernel)
    with tf.Graph().as_default() as graph:
        function(*(tf.compat.v1.placeholder(dtype, x.shape) for x in xs))
    if kernel in KERNELS and not is_arithmetic(graph):
        return None
    plain, compiled = (tf.function(function, jit_compile=xla, autograph=False)(*xs) for xla in (False, True))
    for one, other in zip(plain, compiled, strict=True):
        a, b = (np.asarray(result, np.float64) for result in (one, other))
        largest = np.max(np.abs(a[np.isfinite(a)]), initial=1.0)
        if not np.allclose(a, b, RELATIVE, OF_LARGEST * largest, equal_nan=True):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("kernel", sorted(set(COMPARED) & KERNELS))
def test_xla_computes_what_the_kernels_of_the_table_do(kernel: str) -> None:
    assert not any(differs(kernel, dtype) for dtype in DTYPES)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", sorted(set(COMPARED) & OF_KERNELS_ALONE))
def test_xla_computes_something_else_than_the_other_kernels(kernel: str) -> None:
    assert any(differs(kernel, dtype, (*NUMBERS, np.inf)) for dtype in DTYPES)


def test_most_of_the_table_is_compared() -> None:
    assert len(set(COMPARED) & KERNELS) > 60


def op_of(function: Callable[..., tf.Tensor]) -> Op:
    float32 = ("float32",)
    return Op(
        name="planted",
        summary="planted",
        doc=None,
        function=function,
        reference=None,
        inputs=(Input("x", float32),),
        outputs=(Output("y", float32),),
        mechanism="register_gradient",
        source="a test",
        batching="elementwise",
        examples=(Example("first", {"x": [0.5, 2.0]}),),
    )


@pytest.mark.parametrize(
    ("function", "mode"),
    [
        (lambda x: x * tf.exp(-x), "xla"),
        (lambda x: tf.where(x > 0, tf.sqrt(x), tf.zeros_like(x)), "graph"),
        # XLA returns x, where the exponential overflows.
        (lambda x: tf.math.log(tf.exp(x)), "graph"),
        # Its gradient at NaN is 1 in a graph. The table allows it, because its kernels agree at all other numbers.
        (tf.nn.elu, "graph"),
    ],
    ids=["arithmetic", "a masked root", "a rewritten logarithm", "NaN"],
)
def test_an_op_gets_xla_by_default_if_it_computes_the_same(function, mode) -> None:
    assert default_mode(op_of(function), "float32", "cpu") == mode
