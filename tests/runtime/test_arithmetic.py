"""XLA computes what TensorFlow's kernels do, for each kernel of the table, under masks too, at both orders."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from app.autodiff.default_mode import default_mode
from app.runtime.kernels import ARITHMETIC, is_arithmetic
from ops import Example, Input, Op, Output
from tests.runtime.kernel_calls import OF_MATRICES, by_name, takes_numbers

DTYPES = (tf.float32, tf.float64)
NUMBERS = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -3.0, 10.0, -10.0, 1e3, -1e3, 1e-6, -1e-6)
# Kernels of XLA and of TensorFlow may be off by as much, where derivatives cancel: lgamma at 1 in float32, say.
RELATIVE, OF_LARGEST = 1e-3, 1e-5


# Their gradients need kernels that are not in the table, so that no gradient of theirs gets XLA by default.
OF_ORDER_0 = {"ConcatV2", "Prod", "Slice", "StridedSlice", "Transpose"}
# Every graph of the tests has the first two, the third has no result, and XLA has no kernel for the last.
NOT_COMPARED = {"Const", "Placeholder", "NoOp", "InvGrad"}
# Of these, XLA computes something else, such as NaN where they multiply a gradient of 0 by infinity.
OF_KERNELS_ALONE = {"InvGrad", "ReciprocalGrad", "RsqrtGrad", "Selu", "SeluGrad", "SqrtGrad"}
COMPARED = sorted(
    each for each in (ARITHMETIC | OF_KERNELS_ALONE) - OF_MATRICES.keys() - NOT_COMPARED if takes_numbers(each)
)


def all_masks(*xs: Any) -> tuple[Any, ...]:
    return xs[0] == xs[0], xs[-1] > 0.7


def two_masks(x: Any) -> tuple[Any, ...]:
    return tf.ones_like(x) > 0, x > 0


def with_derivatives(
    call: Callable[..., Any], order: int = 2, masks: Callable[..., tuple[Any, ...]] = all_masks
) -> Callable[..., list[tf.Tensor]]:
    """Return a function that returns its value, masked in several ways, with the derivatives of each."""

    def function(*xs):
        y = call(*xs)
        results = []
        for mask in masks(*xs):
            results.append(tf.where(mask, y, tf.zeros_like(y)))
            for _ in range(order):
                try:
                    gradients = tf.gradients(results[-1:], xs)
                except LookupError:
                    break
                results += [gradient for gradient in gradients if gradient is not None]
                if gradients[0] is None:
                    break
        return results

    return function


def highest_order(kernel: str, call: Callable[..., Any], dtype: tf.DType, shapes: Sequence[Sequence[int]]) -> int:
    """Return the order up to which graphs have only kernels of the table; above it, XLA is no default."""
    for order in (2, 1, 0):
        with tf.Graph().as_default() as graph:
            with_derivatives(call, order)(*(tf.compat.v1.placeholder(dtype, shape) for shape in shapes))
        assert any(node.type == kernel for node in graph.get_operations())
        if is_arithmetic(graph):
            return order
    return -1


def are_equal(plain: Sequence[tf.Tensor], compiled: Sequence[tf.Tensor]) -> bool:
    for one, other in zip(plain, compiled, strict=True):
        a, b = (np.asarray(result, np.float64) for result in (one, other))
        largest = np.max(np.abs(a[np.isfinite(a)]), initial=1.0)
        if not np.allclose(a, b, RELATIVE, OF_LARGEST * largest, equal_nan=True):
            return False
    return True


def differing(functions: Mapping[str, Callable[..., Any]], *xs: tf.Tensor) -> list[str]:
    """Return the names of the functions for which XLA computes something else; one executable computes all."""

    def all_results(*xs: Any) -> dict[str, Any]:
        return {name: function(*xs) for name, function in functions.items()}

    plain, compiled = (tf.function(all_results, jit_compile=xla, autograph=False)(*xs) for xla in (False, True))
    return [name for name in functions if not are_equal(plain[name], compiled[name])]


def differing_kernels(kernels: Iterable[str], dtype: tf.DType, numbers: Sequence[float] = NUMBERS) -> list[str]:
    """Return the kernels that XLA computes otherwise, at the highest order that has only kernels of the table."""
    found = list[str]()
    for count in (1, 2):
        functions = dict[str, Callable[..., Any]]()
        xs = [tf.constant(column, dtype) for column in zip(*product(numbers, repeat=count), strict=True)]
        for kernel in kernels:
            if len(op_def_registry.get(kernel).input_arg) == count:
                call = by_name(kernel)
                order = highest_order(kernel, call, dtype, [x.shape for x in xs]) if kernel in ARITHMETIC else 2
                assert order >= 0, kernel
                functions[kernel] = with_derivatives(call, order)
        found += differing(functions, *xs) if functions else []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tf.float32, pytest.param(tf.float64, marks=pytest.mark.thorough)], ids=str)
def test_xla_computes_what_the_kernels_of_the_table_do(dtype: tf.DType) -> None:
    assert not differing_kernels(sorted(set(COMPARED) & ARITHMETIC), dtype)


@pytest.mark.slow
@pytest.mark.thorough
def test_xla_computes_what_the_kernels_of_matrices_and_structure_do() -> None:
    x = tf.constant(np.random.default_rng(0).choice(NUMBERS, (48, 4)), tf.float32)
    functions = dict[str, Callable[..., Any]]()
    for kernel, call in OF_MATRICES.items():
        order = highest_order(kernel, call, tf.float32, [x.shape])
        assert order == (0 if kernel in OF_ORDER_0 else 2), kernel
        functions[kernel] = with_derivatives(call, order, two_masks)
    assert not differing(functions, x)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", sorted(set(COMPARED) & OF_KERNELS_ALONE))
def test_xla_computes_something_else_than_the_other_kernels(kernel: str) -> None:
    assert any(differing_kernels([kernel], dtype, (*NUMBERS, np.inf)) for dtype in DTYPES)


def test_every_kernel_of_the_table_is_compared() -> None:
    assert (ARITHMETIC | OF_KERNELS_ALONE) - OF_MATRICES.keys() - NOT_COMPARED == set(COMPARED)


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
