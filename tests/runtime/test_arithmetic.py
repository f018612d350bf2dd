"""XLA computes what TensorFlow's kernels do, for each kernel of the table, under masks too, at both orders."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from app.autodiff.default_mode import default_mode
from app.runtime.arithmetic import ARITHMETIC, is_arithmetic
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


# Those of matrices, of structure and of bools, as functions of a matrix that return one of its shape.
raw = tf.raw_ops
OF_MATRICES: dict[str, Callable[[Any], Any]] = {
    "AddN": lambda x: raw.AddN(inputs=[x, x * x, x]),
    "All": lambda x: kept(x, raw.All(input=x > -2, axis=[1], keep_dims=True)),
    "Any": lambda x: kept(x, raw.Any(input=x > 2, axis=[1], keep_dims=True)),
    "ArgMax": lambda x: x * tf.cast(raw.ArgMax(input=x, dimension=1), x.dtype)[:, None],
    "ArgMin": lambda x: x * tf.cast(raw.ArgMin(input=x, dimension=1), x.dtype)[:, None],
    "BatchMatMulV2": lambda x: tf.reshape(raw.BatchMatMulV2(x=cubes(x), y=cubes(x)), x.shape),
    "BiasAdd": lambda x: raw.BiasAdd(value=x, bias=total(x, 0)),
    "BiasAddGrad": lambda x: x * raw.BiasAddGrad(out_backprop=x),
    "BroadcastGradientArgs": lambda x: x * tf.cast(raw.BroadcastGradientArgs(s0=[4, 1], s1=[4, 4])[0][0], x.dtype),
    "BroadcastTo": lambda x: x * raw.BroadcastTo(input=total(x, 0), shape=x.shape),
    "Cast": lambda x: x * raw.Cast(x=raw.Cast(x=x, DstT=tf.int32), DstT=x.dtype),
    "ClipByValue": lambda x: raw.ClipByValue(
        t=x, clip_value_min=tf.constant(-1, x.dtype), clip_value_max=tf.constant(2, x.dtype)
    ),
    "ConcatV2": lambda x: raw.ConcatV2(values=[x[:, 2:] * x[:, 2:], x[:, :2]], axis=1),
    "Cumprod": lambda x: raw.Cumprod(x=x, axis=1),
    "Cumsum": lambda x: raw.Cumsum(x=x * x, axis=1),
    "Equal": lambda x: kept(x, raw.Equal(x=x, y=x[::-1])),
    "ExpandDims": lambda x: x * raw.ExpandDims(input=total(x, 1), axis=1),
    "Fill": lambda x: x * raw.Fill(dims=[4], value=total(x, [0, 1])),
    "Greater": lambda x: kept(x, raw.Greater(x=x, y=x[::-1])),
    "GreaterEqual": lambda x: kept(x, raw.GreaterEqual(x=x, y=x[::-1])),
    "IdentityN": lambda x: raw.IdentityN(input=[x * x, x])[0],
    "IsFinite": lambda x: kept(x, raw.IsFinite(x=1 / x)),
    "IsInf": lambda x: kept(x, raw.IsInf(x=1 / x)),
    "IsNan": lambda x: kept(x, raw.IsNan(x=x / x)),
    "Less": lambda x: kept(x, raw.Less(x=x, y=x[::-1])),
    "LessEqual": lambda x: kept(x, raw.LessEqual(x=x, y=x[::-1])),
    "LogicalAnd": lambda x: kept(x, raw.LogicalAnd(x=x > 0, y=x < 2)),
    "LogicalNot": lambda x: kept(x, raw.LogicalNot(x=x > 0)),
    "LogicalOr": lambda x: kept(x, raw.LogicalOr(x=x < 0, y=x > 2)),
    "MatMul": lambda x: raw.MatMul(a=x, b=raw.MatMul(a=x, b=x, transpose_a=True)),
    "Max": lambda x: x * raw.Max(input=x, axis=[1], keep_dims=True),
    "Mean": lambda x: x * raw.Mean(input=x, axis=[1], keep_dims=True),
    "Min": lambda x: x * raw.Min(input=x, axis=[1], keep_dims=True),
    "NotEqual": lambda x: kept(x, raw.NotEqual(x=x, y=x[::-1])),
    "Pack": lambda x: raw.Pack(values=[total(x, 1), total(x * x, 1), total(x, 1), total(x * x * x, 1)], axis=1),
    "Prod": lambda x: x * raw.Prod(input=x, axis=[1], keep_dims=True),
    "Range": lambda x: x * raw.Range(start=tf.constant(0, x.dtype), limit=4, delta=1),
    "Rank": lambda x: x * tf.cast(raw.Rank(input=x), x.dtype),
    "Reshape": lambda x: x * tf.reshape(tf.square(raw.Reshape(tensor=x, shape=x.shape[::-1])), x.shape),
    "Select": lambda x: raw.Select(condition=x > 0.7, x=x * x, y=-x),
    "SelectV2": lambda x: raw.SelectV2(condition=x[:1] > 0.7, t=x * x, e=-x),
    "Shape": lambda x: x * tf.cast(raw.Shape(input=x)[0], x.dtype),
    "Size": lambda x: x * tf.cast(raw.Size(input=x), x.dtype),
    "Slice": lambda x: x * raw.Slice(input=x, begin=[1, 0], size=[1, 4]),
    "StridedSlice": lambda x: x * raw.StridedSlice(input=x, begin=[0, 3], end=[48, 4], strides=[1, 1]),
    "Sum": lambda x: x * raw.Sum(input=x, axis=[1], keep_dims=True),
    "Tile": lambda x: x * raw.Tile(input=tf.reduce_sum(x, 1, keepdims=True), multiples=[1, 4]),
    "Transpose": lambda x: x * tf.transpose(tf.square(raw.Transpose(x=x, perm=[1, 0]))),
    "Unpack": lambda x: x * tf.expand_dims(raw.Unpack(value=x * x, num=4, axis=1)[1], 1),
}
# Their gradients need kernels that are not in the table, so that no gradient of theirs gets XLA by default.
OF_ORDER_0 = {"ConcatV2", "Prod", "Slice", "StridedSlice", "Transpose"}
# Every graph of the tests has the first two, the third has no result, and XLA has no kernel for the last.
NOT_COMPARED = {"Const", "Placeholder", "NoOp", "InvGrad"}
# Of these, XLA computes something else, such as NaN where they multiply a gradient of 0 by infinity.
OF_KERNELS_ALONE = {"InvGrad", "ReciprocalGrad", "RsqrtGrad", "Selu", "SeluGrad", "SqrtGrad"}
COMPARED = sorted(
    each for each in (ARITHMETIC | OF_KERNELS_ALONE) - OF_MATRICES.keys() - NOT_COMPARED if takes_numbers(each)
)


def kept(x: Any, condition: Any) -> Any:
    """The square of x where the condition, which broadcasts, holds, else 0."""
    return tf.where(condition, x * x, tf.zeros_like(x))


def total(x: Any, axis: Any) -> Any:
    return tf.reduce_sum(x, axis)


def cubes(x: Any) -> Any:
    return tf.reshape(x, [-1, 4, 4])


def by_name(kernel: str) -> Callable[..., Any]:
    names = [arg.name for arg in op_def_registry.get(kernel).input_arg]
    return lambda *xs: getattr(tf.raw_ops, kernel)(**dict(zip(names, xs, strict=True)))


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
