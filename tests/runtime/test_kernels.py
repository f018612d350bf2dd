"""Graphs compute the derivatives that mode eager does, for one direction and for many at once, through every kernel."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.ops import gradient_registry

import app.runtime.modes  # noqa: F401 - it installs the corrections
from app.runtime.calculus import Calculus, Graph, Tapes
from app.runtime.kernels import KERNELS
from tests.runtime.kernel_calls import CALLS, OF_MATRICES, Call, by_name, takes_numbers

DIRECTIONS, MATRIX = 3, (48, 4)
# Of these, TensorFlow has no kernel for float64, no second order, or no gradient where it does not know the sizes.
FLOAT32 = """
ApproxTopK AvgPool3D AvgPool3DGrad BlockLSTMV2 Complex CropAndResize FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars
FakeQuantWithMinMaxVarsPerChannel FusedBatchNorm FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 Imag LRN
MaxPool3D Real ResizeBicubic ResizeBilinear ScaleAndTranslate SparseMatMul
"""
FIRST_ORDER = """
BlockLSTMV2 CTCLoss Dilation2D FractionalAvgPool FractionalMaxPool Igamma Igammac SparseAdd SparseSlice SparseSoftmax
"""
SIZED = """
ApproxTopK BatchMatMulV2 BroadcastTo ExtractVolumePatches FractionalAvgPool IsotonicRegression MatrixDiagPartV3
MatrixDiagV3 Qr Reshape Svd
"""
# These take numbers, and are not for the CPU, eager mode or pages, or have no gradient but an error.
NOT_CALLED = """
CopyToMesh CopyToMeshGrad DebugGradientIdentity DebugGradientRefIdentity Enter Exit NcclAllReduce NcclBroadcast
PreventGradient QuantizeAndDequantize RefEnter RefExit RefIdentity RefNextIteration Relayout XlaClusterOutput
XlaEinsum XlaSharding XlaSpmdFullToShardShape XlaSpmdShardToFullShape _EagerConst
"""
# The derivatives of functions are compared elsewhere, and two have no gradient, or no kernel. The others are in the
# graphs of those that are called.
OTHERS = """
Case FusedBatchNormGrad FusedBatchNormGradV2 If MaxPool3DGrad MaxPool3DGradGrad MaxPoolGradV2 OptionalFromValue
OptionalGetValue PreventGradient SparseDenseCwiseAdd StatelessCase StatelessIf
StatelessWhile TensorListScatterIntoExistingList TopK While
"""
EXACT = {tf.float64: 1e-9, tf.float32: 1e-3}
ELEMENTWISE = sorted(
    kernel
    for kernel, entry in gradient_registry._registry.items()
    if entry["type"] and hasattr(tf.raw_ops, kernel) and takes_numbers(kernel)  # not those of native ops
    if kernel not in {*NOT_CALLED.split(), *" ".join(CALLS).split()}
)
ALL = {
    **{kernel: Call(by_name(kernel), ((5,),) * len(op_def_registry.get(kernel).input_arg)) for kernel in ELEMENTWISE},
    **{kernel: Call(function, (MATRIX,)) for kernel, function in OF_MATRICES.items()},
    **CALLS,
}


def derivatives(
    calculus: Calculus, call: Call, order: int, tensors: tuple[Sequence[Any], Any, Sequence[Any]]
) -> list[tuple[Any, Any]]:
    """Return the vjp along ``dys``, and that of the vjp along ``rows``: of all at once, and of one after the other.

    The kernel gets computed tensors and cotangents, whose memory it may use.
    """
    xs, dys, rows = tensors
    dy = dys[0]
    calculus.watch([*xs, dy])
    y = tf.square(call.function(*map(tf.square, xs)))
    pullback = calculus.pullback([y], xs)
    found = both(calculus, pullback, [dys])
    if order > 1 and any(one is not None for _, one in found):
        dxs = [(dx, along) for dx, along in zip(pullback([dy]), rows, strict=True) if dx is not None]
        again = calculus.pullback([dx for dx, _ in dxs], [dy, *xs])
        found += both(calculus, again, [along for _, along in dxs])
    return found


def both(calculus: Calculus, pullback: Callable[..., Any], rows: Sequence[Any]) -> list[tuple[Any, Any]]:
    one = [pullback(row) for row in zip(*(tf.unstack(x, DIRECTIONS) for x in rows), strict=True)]
    one = [None if column[0] is None else tf.stack(column) for column in zip(*one, strict=True)]
    return list(zip(calculus.each(pullback, rows), one, strict=True))


def eager(call: Call, order: int, tensors: Any) -> list[tuple[Any, Any]]:
    with Tapes(order) as tapes:
        return derivatives(tapes, call, order, tensors)


def in_a_graph(call: Call, order: int, tensors: Any, *, sized: bool) -> Any:
    xs, dys, rows = tensors

    def spec(x: Any, first: int | None = None) -> Any:
        sizes = list(x.shape) if sized else [None] * len(x.shape)
        return tf.TensorSpec(sizes if first is None else [first, *sizes[1:]], x.dtype)

    signature = [[spec(x) for x in xs], spec(dys, DIRECTIONS), [spec(row, DIRECTIONS) for row in rows]]

    @tf.function(autograph=False, input_signature=signature)
    def traced(xs: Any, dys: Any, rows: Any) -> Any:
        return derivatives(Graph(), call, order, (xs, dys, rows))

    return traced(xs, dys, rows)


def drawn(call: Call, dtype: tf.DType) -> tuple[list[Any], Any, list[Any]]:
    """Return tensors, and three directions of the result and of each tensor."""
    rng = np.random.default_rng(0)
    xs = [tf.constant(rng.uniform(0.5, 0.95, shape), dtype) for shape in call.shapes]
    y = call.function(*map(tf.square, xs))
    dys, *rows = (tf.constant(rng.normal(size=(DIRECTIONS, *x.shape)), dtype) for x in (y, *xs))
    return xs, dys, rows


def assert_equal(found: Any, expected: Any, dtype: tf.DType) -> None:
    for one, (_, other) in zip(found, expected, strict=True):
        for x in one:
            assert (x is None) == (other is None)
            if other is not None:
                largest = np.abs(other).max(initial=0)
                np.testing.assert_allclose(x, other, EXACT[dtype], EXACT[dtype] * largest)


@pytest.mark.slow
@pytest.mark.share(16)
@pytest.mark.parametrize("name", ALL)
def test_graphs_compute_what_mode_eager_does_for_one_direction_and_for_many(name: str) -> None:
    call, kernel = ALL[name], name.partition(" ")[0]
    dtype, order = tf.float32 if kernel in FLOAT32.split() else tf.float64, 1 if kernel in FIRST_ORDER.split() else 2
    tensors = drawn(call, dtype)
    found = in_a_graph(call, order, tensors, sized=kernel in SIZED.split())
    assert_equal(found, eager(call, order, tensors), dtype)


def test_every_kernel_with_a_gradient_is_called() -> None:
    """A kernel that is in the table of the service is not tried there."""
    called = {word for name in ALL for word in name.split()}
    with_gradient = {kernel for kernel, entry in gradient_registry._registry.items() if entry["type"]}
    assert (with_gradient & KERNELS.keys()) - called == set(OTHERS.split())
