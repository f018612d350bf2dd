"""Calls of TensorFlow's kernels, as functions of tensors of floats: one table for all tests that compare kernels."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

raw = tf.raw_ops


class Call(NamedTuple):
    """A function that calls a kernel, and the shapes of its tensors, whose numbers are between 0.25 and 0.9."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]


def takes_numbers(kernel: str) -> bool:
    """Whether a kernel computes a number from one or two numbers of its own dtype."""
    signature = op_def_registry.get(kernel)
    if signature is None or len(signature.output_arg) != 1 or not 0 < len(signature.input_arg) < 3:
        return False
    args = [*signature.input_arg, *signature.output_arg]
    return all(arg.type_attr == "T" and not arg.number_attr for arg in args)


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


def cx(x: Any) -> Any:
    return tf.complex(x, x * x)


def parts(z: Any) -> Any:
    return tf.math.real(z) + 2 * tf.math.imag(z)


def definite(x: Any) -> Any:
    return tf.matmul(x, x, transpose_b=True) + 3 * tf.eye(tf.shape(x)[-1], dtype=x.dtype)


def regular(x: Any) -> Any:
    return x + 3 * tf.eye(tf.shape(x)[-1], dtype=x.dtype)


def as_list(x: Any) -> Any:
    return raw.TensorListFromTensor(tensor=x, element_shape=tf.constant([4]))


def normalized(kernel: str) -> Callable[..., Any]:
    def call(x: Any, scale: Any, offset: Any) -> Any:
        none = tf.zeros([0], x.dtype)
        return getattr(raw, kernel)(x=x, scale=scale, offset=offset, mean=none, variance=none, is_training=True)[0]

    return call


V, M, SQUARE, IMAGE, VOLUME = (5,), (4, 4), (3, 3), (2, 4, 4, 2), (1, 3, 3, 3, 2)
POOL2 = {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
POOL3 = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 1, 1, 1, 1], "padding": "SAME"}
SEGMENTS = [0, 0, 1, 1]
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
CALLS: dict[str, Call] = {
    "Angle": Call(lambda x: tf.math.angle(cx(x)), (V,)),
    "ApproxTopK": Call(lambda x: raw.ApproxTopK(input=x, k=4)[0], (M,)),
    "AvgPool": Call(lambda x: raw.AvgPool(value=x, **POOL2), (IMAGE,)),
    "AvgPool3D": Call(lambda x: raw.AvgPool3D(input=x, **POOL3), (VOLUME,)),
    "AvgPool3DGrad": Call(lambda x: raw.AvgPool3DGrad(orig_input_shape=list(VOLUME), grad=x, **POOL3), (VOLUME,)),
    "AvgPoolGrad": Call(lambda x: raw.AvgPoolGrad(orig_input_shape=[2, 4, 4, 2], grad=x, **POOL2), (IMAGE,)),
    "BandedTriangularSolve": Call(
        lambda b, x: raw.BandedTriangularSolve(matrix=b + 1, rhs=x),
        (
            (2, 4),
            (4, 4),
        ),
    ),
    "BatchMatMul": Call(
        lambda x, y: raw.BatchMatMul(x=x, y=y),
        (
            (2, 3, 3),
            (2, 3, 3),
        ),
    ),
    "BatchMatMulV3": Call(
        lambda x, y: raw.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_y=True),
        (
            (2, 3, 3),
            (2, 3, 3),
        ),
    ),
    "BatchToSpace": Call(lambda x: raw.BatchToSpace(input=x, crops=[[0, 0], [0, 0]], block_size=2), ((4, 2, 2, 1),)),
    "BatchToSpaceND": Call(lambda x: raw.BatchToSpaceND(input=x, block_shape=[2], crops=[[0, 0]]), ((4, 2, 2),)),
    "Betainc": Call(lambda x: raw.Betainc(a=2 * tf.ones_like(x), b=3 * tf.ones_like(x), x=x), (V,)),
    "BiasAdd NCHW": Call(
        lambda x, b: raw.BiasAdd(value=x, bias=b, data_format="NCHW"),
        (
            (2, 3, 4, 4),
            (3,),
        ),
    ),
    "BiasAddV1": Call(
        lambda x, b: raw.BiasAddV1(value=x, bias=b),
        (
            M,
            (4,),
        ),
    ),
    "BlockLSTMV2": Call(
        lambda x, w: raw.BlockLSTMV2(
            seq_len_max=2,
            x=x,
            cs_prev=tf.zeros([1, 2], x.dtype),
            h_prev=tf.zeros([1, 2], x.dtype),
            w=w,
            wci=tf.zeros([2], x.dtype),
            wcf=tf.zeros([2], x.dtype),
            wco=tf.zeros([2], x.dtype),
            b=tf.zeros([8], x.dtype),
        )[6],
        (
            (2, 1, 2),
            (4, 8),
        ),
    ),
    "BroadcastTo same": Call(lambda x: raw.BroadcastTo(input=x, shape=[5]), (V,)),
    "CheckNumerics": Call(lambda x: raw.CheckNumerics(tensor=x, message="m"), (V,)),
    "CheckNumericsV2": Call(lambda x: raw.CheckNumericsV2(tensor=x, message="m"), (V,)),
    "Cholesky": Call(lambda x: raw.Cholesky(input=definite(x)), (SQUARE,)),
    "ClipByValue full": Call(
        lambda x, a, b: tf.clip_by_value(x, a / 3, b),
        (
            V,
            V,
            V,
        ),
    ),
    "Complex": Call(
        lambda x, y: parts(raw.Complex(real=x, imag=y * x)),
        (
            V,
            V,
        ),
    ),
    "ComplexAbs": Call(lambda x: tf.abs(cx(x)), (V,)),
    "Concat": Call(
        lambda x, y: raw.Concat(concat_dim=0, values=[x * x, y]),
        (
            V,
            V,
        ),
    ),
    "ConcatV2 one": Call(lambda x: raw.ConcatV2(values=[x[:, 2:] * x[:, 2:], x[:, :2]], axis=1), (M,)),
    "Conj": Call(lambda x: parts(raw.Conj(input=cx(x)) ** 2), (V,)),
    "ConjugateTranspose": Call(lambda x: parts(raw.ConjugateTranspose(x=cx(x), perm=[1, 0]) ** 2), (M,)),
    "Conv2D": Call(
        lambda x, f: raw.Conv2D(input=x, filter=f, strides=[1] * 4, padding="SAME"),
        (
            IMAGE,
            (2, 2, 2, 2),
        ),
    ),
    "Conv2D own": Call(
        lambda x: raw.Conv2D(
            input=x,
            filter=tf.reshape(x[:1], [4, 4, 2, 1])[:2, :2] * tf.ones([1, 1, 1, 2], x.dtype),
            strides=[1] * 4,
            padding="SAME",
        ),
        (IMAGE,),
    ),
    "Conv2DBackpropFilter": Call(
        lambda x, g: raw.Conv2DBackpropFilter(
            input=x, filter_sizes=[2, 2, 2, 2], out_backprop=g, strides=[1] * 4, padding="SAME"
        ),
        (
            IMAGE,
            IMAGE,
        ),
    ),
    "Conv2DBackpropInput": Call(
        lambda f, g: raw.Conv2DBackpropInput(
            input_sizes=[2, 4, 4, 2], filter=f, out_backprop=g, strides=[1] * 4, padding="SAME"
        ),
        (
            (2, 2, 2, 2),
            IMAGE,
        ),
    ),
    "Conv3D": Call(
        lambda x, f: raw.Conv3D(input=x, filter=f, strides=[1] * 5, padding="SAME"),
        (
            VOLUME,
            (2, 2, 2, 2, 2),
        ),
    ),
    "Conv3DBackpropFilterV2": Call(
        lambda x, g: raw.Conv3DBackpropFilterV2(
            input=x, filter_sizes=[2, 2, 2, 2, 2], out_backprop=g, strides=[1] * 5, padding="SAME"
        ),
        (
            VOLUME,
            VOLUME,
        ),
    ),
    "Conv3DBackpropInputV2": Call(
        lambda f, g: raw.Conv3DBackpropInputV2(
            input_sizes=list(VOLUME), filter=f, out_backprop=g, strides=[1] * 5, padding="SAME"
        ),
        (
            (2, 2, 2, 2, 2),
            VOLUME,
        ),
    ),
    "CropAndResize CropAndResizeGradImage": Call(
        lambda x: raw.CropAndResize(
            image=x, boxes=[[0.1, 0.1, 1.0, 1.0], [0.2, 0.1, 0.9, 1.0]], box_ind=[0, 1], crop_size=[4, 4]
        ),
        (IMAGE,),
    ),
    "Cross": Call(
        lambda x, y: raw.Cross(a=x, b=y),
        (
            (2, 3),
            (2, 3),
        ),
    ),
    "CTCLoss": Call(
        lambda x: raw.CTCLoss(inputs=x, labels_indices=[[0, 0], [0, 1]], labels_values=[0, 1], sequence_length=[4])[0],
        ((4, 1, 3),),
    ),
    "Cumsum rev": Call(lambda x: raw.Cumsum(x=x, axis=0, reverse=True, exclusive=True), (M,)),
    "CumulativeLogsumexp": Call(lambda x: raw.CumulativeLogsumexp(x=x, axis=-1), (M,)),
    "DepthToSpace": Call(lambda x: raw.DepthToSpace(input=x, block_size=2), ((1, 2, 2, 4),)),
    "DepthwiseConv2dNative": Call(
        lambda x, f: raw.DepthwiseConv2dNative(input=x, filter=f, strides=[1] * 4, padding="SAME"),
        (
            IMAGE,
            (2, 2, 2, 1),
        ),
    ),
    "DepthwiseConv2dNativeBackpropFilter": Call(
        lambda x, g: raw.DepthwiseConv2dNativeBackpropFilter(
            input=x, filter_sizes=[2, 2, 2, 1], out_backprop=g, strides=[1] * 4, padding="SAME"
        ),
        (
            IMAGE,
            IMAGE,
        ),
    ),
    "DepthwiseConv2dNativeBackpropInput": Call(
        lambda f, g: raw.DepthwiseConv2dNativeBackpropInput(
            input_sizes=[2, 4, 4, 2], filter=f, out_backprop=g, strides=[1] * 4, padding="SAME"
        ),
        (
            (2, 2, 2, 1),
            IMAGE,
        ),
    ),
    "Diag": Call(lambda x: raw.Diag(diagonal=x), (V,)),
    "DiagPart": Call(lambda x: raw.DiagPart(input=x), (M,)),
    "Dilation2D": Call(
        lambda x, f: raw.Dilation2D(input=x, filter=f, strides=[1] * 4, rates=[1] * 4, padding="SAME"),
        (
            IMAGE,
            (2, 2, 2),
        ),
    ),
    "DynamicPartition": Call(
        lambda x: tf.concat(raw.DynamicPartition(data=x, partitions=[0, 1, 0, 1], num_partitions=2), 0), (M,)
    ),
    "DynamicStitch": Call(lambda x: raw.DynamicStitch(indices=[[2, 0], [1, 3]], data=[x[:2] * x[:2], x[2:]]), (M,)),
    "Eig": Call(
        lambda x: tf.math.real(raw.Eig(input=definite(x), Tout=tf.complex128, compute_v=False)[0]) ** 2, (SQUARE,)
    ),
    "Einsum": Call(
        lambda x, y: raw.Einsum(inputs=[x, y], equation="ij,jk->ik"),
        (
            SQUARE,
            SQUARE,
        ),
    ),
    "Einsum dots": Call(
        lambda x, y: raw.Einsum(inputs=[x, y], equation="...ij,...jk->...ki"),
        (
            (2, 3, 3),
            (3, 3),
        ),
    ),
    "EnsureShape": Call(lambda x: raw.EnsureShape(input=x, shape=[5]), (V,)),
    "EuclideanNorm": Call(lambda x: x * raw.EuclideanNorm(input=x, axis=[1], keep_dims=True), (M,)),
    "ExtractImagePatches": Call(
        lambda x: raw.ExtractImagePatches(
            images=x, ksizes=[1, 2, 2, 1], strides=[1] * 4, rates=[1] * 4, padding="SAME"
        ),
        (IMAGE,),
    ),
    "ExtractVolumePatches": Call(
        lambda x: raw.ExtractVolumePatches(input=x, ksizes=[1, 2, 2, 2, 1], strides=[1] * 5, padding="SAME"), (VOLUME,)
    ),
    "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient": Call(
        lambda x: raw.FakeQuantWithMinMaxArgs(inputs=x, min=0, max=0.5), (V,)
    ),
    "FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsGradient": Call(
        lambda x, a, b: raw.FakeQuantWithMinMaxVars(inputs=x, min=-a, max=b),
        (
            V,
            (),
            (),
        ),
    ),
    "FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient": Call(
        lambda x, a, b: raw.FakeQuantWithMinMaxVarsPerChannel(inputs=x, min=-a, max=b),
        (
            M,
            (4,),
            (4,),
        ),
    ),
    "FFT": Call(lambda x: parts(raw.FFT(input=cx(x)) ** 2), (M,)),
    "FFT2D": Call(lambda x: parts(raw.FFT2D(input=cx(x)) ** 2), (M,)),
    "FFT3D": Call(lambda x: parts(raw.FFT3D(input=cx(x)) ** 2), ((2, 2, 2),)),
    "FractionalAvgPool": Call(
        lambda x: raw.FractionalAvgPool(
            value=x, pooling_ratio=[1.0, 1.5, 1.5, 1.0], deterministic=True, seed=1, seed2=2
        )[0],
        (IMAGE,),
    ),
    "FractionalMaxPool": Call(
        lambda x: raw.FractionalMaxPool(
            value=x, pooling_ratio=[1.0, 1.5, 1.5, 1.0], deterministic=True, seed=1, seed2=2
        )[0],
        (IMAGE,),
    ),
    "FusedBatchNorm": Call(
        normalized("FusedBatchNorm"),
        (
            IMAGE,
            (2,),
            (2,),
        ),
    ),
    "FusedBatchNormGradV3": Call(
        lambda g, x, s: raw.FusedBatchNormGradV3(
            y_backprop=g,
            x=x,
            scale=s,
            reserve_space_1=tf.reduce_mean(x, [0, 1, 2]),
            reserve_space_2=tf.reduce_mean(x, [0, 1, 2]) + 0.1,
            reserve_space_3=s,
        )[0],
        (
            IMAGE,
            IMAGE,
            (2,),
        ),
    ),
    "FusedBatchNormV2": Call(
        normalized("FusedBatchNormV2"),
        (
            IMAGE,
            (2,),
            (2,),
        ),
    ),
    "FusedBatchNormV3": Call(
        normalized("FusedBatchNormV3"),
        (
            IMAGE,
            (2,),
            (2,),
        ),
    ),
    "Gather": Call(lambda x: raw.Gather(params=x, indices=[3, 0, 3, 1]), (M,)),
    "GatherNd": Call(lambda x: raw.GatherNd(params=x, indices=[[3], [0], [3], [1]]), (M,)),
    "GatherV2": Call(lambda x: raw.GatherV2(params=x, indices=[3, 0, 3, 1], axis=1), (M,)),
    "GatherV2 axis -1": Call(lambda x: raw.GatherV2(params=x, indices=[3, 0, 3, 1], axis=-1), (M,)),
    "GatherV2 axis 0": Call(lambda x: raw.GatherV2(params=x, indices=[3, 0, 3, 1], axis=0), (M,)),
    "GatherV2 batch": Call(lambda x: tf.gather(x, [[1, 0], [2, 2], [3, 0], [1, 1]], batch_dims=1, axis=1), (M,)),
    "IFFT": Call(lambda x: parts(raw.IFFT(input=cx(x)) ** 2), (M,)),
    "IFFT2D": Call(lambda x: parts(raw.IFFT2D(input=cx(x)) ** 2), (M,)),
    "IFFT3D": Call(lambda x: parts(raw.IFFT3D(input=cx(x)) ** 2), ((2, 2, 2),)),
    "Imag": Call(lambda x: raw.Imag(input=cx(x) ** 2), (V,)),
    "IRFFT": Call(lambda x: raw.IRFFT(input=cx(x) ** 2, fft_length=[6], Treal=tf.float64), (M,)),
    "IRFFT2D": Call(lambda x: raw.IRFFT2D(input=cx(x) ** 2, fft_length=[4, 6], Treal=tf.float64), (M,)),
    "IsotonicRegression": Call(lambda x: raw.IsotonicRegression(input=x, output_dtype=x.dtype)[0], (M,)),
    "L2Loss": Call(lambda x: raw.L2Loss(t=x), (V,)),
    "LogMatrixDeterminant": Call(lambda x: raw.LogMatrixDeterminant(input=regular(x))[1], ((2, 3, 3),)),
    "LogSoftmax": Call(lambda x: raw.LogSoftmax(logits=x), (M,)),
    "LRN LRNGrad": Call(lambda x: raw.LRN(input=x, depth_radius=1), (IMAGE,)),
    "MatMul twice": Call(
        lambda x: raw.MatMul(a=x, b=raw.MatMul(a=x, b=x, transpose_b=True), transpose_a=True), (SQUARE,)
    ),
    "MatrixBandPart": Call(lambda x: raw.MatrixBandPart(input=x, num_lower=1, num_upper=0), (M,)),
    "MatrixDeterminant": Call(lambda x: raw.MatrixDeterminant(input=regular(x)), ((2, 3, 3),)),
    "MatrixDiag": Call(lambda x: raw.MatrixDiag(diagonal=x), (M,)),
    "MatrixDiagPart": Call(lambda x: raw.MatrixDiagPart(input=x), (M,)),
    "MatrixDiagPartV2": Call(lambda x: raw.MatrixDiagPartV2(input=x, k=1, padding_value=tf.zeros([], x.dtype)), (M,)),
    "MatrixDiagPartV3": Call(
        lambda x: raw.MatrixDiagPartV3(input=x, k=[-1, 1], padding_value=tf.zeros([], x.dtype)), (M,)
    ),
    "MatrixDiagV2": Call(
        lambda x: raw.MatrixDiagV2(diagonal=x, k=0, num_rows=-1, num_cols=-1, padding_value=tf.zeros([], x.dtype)), (M,)
    ),
    "MatrixDiagV3": Call(
        lambda x: raw.MatrixDiagV3(diagonal=x, k=1, num_rows=-1, num_cols=-1, padding_value=tf.zeros([], x.dtype)), (M,)
    ),
    "MatrixInverse": Call(lambda x: raw.MatrixInverse(input=regular(x)), ((2, 3, 3),)),
    "MatrixInverse one": Call(lambda x: raw.MatrixInverse(input=regular(x)), (SQUARE,)),
    "MatrixSetDiag": Call(
        lambda x, d: raw.MatrixSetDiag(input=x, diagonal=d),
        (
            M,
            (4,),
        ),
    ),
    "MatrixSetDiagV2": Call(
        lambda x, d: raw.MatrixSetDiagV2(input=x, diagonal=d, k=0),
        (
            M,
            (4,),
        ),
    ),
    "MatrixSetDiagV3": Call(
        lambda x, d: raw.MatrixSetDiagV3(input=x, diagonal=d, k=1),
        (
            M,
            (3,),
        ),
    ),
    "MatrixSolve": Call(
        lambda x, y: raw.MatrixSolve(matrix=regular(x), rhs=y),
        (
            SQUARE,
            SQUARE,
        ),
    ),
    "MatrixSolveLs": Call(
        lambda x, y: raw.MatrixSolveLs(matrix=regular(x), rhs=y, l2_regularizer=tf.constant(0.1, tf.float64)),
        (
            SQUARE,
            SQUARE,
        ),
    ),
    "MatrixSquareRoot": Call(lambda x: raw.MatrixSquareRoot(input=definite(x)), (SQUARE,)),
    "MatrixTriangularSolve": Call(
        lambda x, y: raw.MatrixTriangularSolve(matrix=regular(x), rhs=y),
        (
            SQUARE,
            SQUARE,
        ),
    ),
    "MaxPool": Call(lambda x: raw.MaxPool(input=x, **POOL2), (IMAGE,)),
    "MaxPool squared": Call(lambda x: raw.MaxPool(input=x, **POOL2) ** 2, (IMAGE,)),
    "MaxPool strided": Call(
        lambda x: raw.MaxPool(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"), (IMAGE,)
    ),
    "MaxPool3D": Call(lambda x: raw.MaxPool3D(input=x, **POOL3), (VOLUME,)),
    "MaxPoolGrad": Call(
        lambda x, g: raw.MaxPoolGrad(orig_input=x, orig_output=raw.MaxPool(input=x, **POOL2), grad=g, **POOL2),
        (
            IMAGE,
            IMAGE,
        ),
    ),
    "MaxPoolGradGrad": Call(
        lambda x, g: raw.MaxPoolGradGrad(orig_input=x, orig_output=raw.MaxPool(input=x, **POOL2), grad=g, **POOL2),
        (
            IMAGE,
            IMAGE,
        ),
    ),
    "MaxPoolV2": Call(lambda x: raw.MaxPoolV2(input=x, **POOL2), (IMAGE,)),
    "MaxPoolWithArgmax MaxPoolGradWithArgmax": Call(lambda x: raw.MaxPoolWithArgmax(input=x, **POOL2)[0], (IMAGE,)),
    "MirrorPad": Call(lambda x: raw.MirrorPad(input=x, paddings=[[1, 0], [0, 2]], mode="REFLECT"), (M,)),
    "MirrorPad none": Call(lambda x: raw.MirrorPad(input=x, paddings=[[0, 0], [0, 0]], mode="REFLECT"), (M,)),
    "MirrorPadGrad": Call(lambda x: raw.MirrorPadGrad(input=x, paddings=[[1, 0], [0, 1]], mode="SYMMETRIC"), (M,)),
    "NthElement": Call(lambda x: raw.NthElement(input=x, n=1), (M,)),
    "Pad": Call(lambda x: raw.Pad(input=x, paddings=[[1, 0], [0, 2]]), (M,)),
    "PadV2": Call(
        lambda x: raw.PadV2(input=x, paddings=[[1, 0], [0, 2]], constant_values=tf.constant(1.0, x.dtype)), (M,)
    ),
    "ParallelDynamicStitch": Call(
        lambda x: raw.ParallelDynamicStitch(indices=[[2, 0], [1, 3]], data=[x[:2] * x[:2], x[2:]]), (M,)
    ),
    "PlaceholderWithDefault": Call(lambda x: raw.PlaceholderWithDefault(input=x, shape=[5]), (V,)),
    "Polygamma": Call(lambda x: raw.Polygamma(a=2 * tf.ones_like(x), x=x), (V,)),
    "Prod axis 0": Call(lambda x: raw.Prod(input=x, axis=[0]), (M,)),
    "Qr": Call(lambda x: raw.Qr(input=regular(x))[1], (SQUARE,)),
    "Qr q": Call(lambda x: raw.Qr(input=regular(x))[0], ((2, 3, 3),)),
    "QuantizeAndDequantizeV2": Call(
        lambda x: raw.QuantizeAndDequantizeV2(
            input=x, input_min=tf.constant(0.0, x.dtype), input_max=tf.constant(1.0, x.dtype), range_given=True
        ),
        (V,),
    ),
    "QuantizeAndDequantizeV3": Call(
        lambda x: raw.QuantizeAndDequantizeV3(
            input=x,
            input_min=tf.constant(0.0, x.dtype),
            input_max=tf.constant(1.0, x.dtype),
            num_bits=8,
            range_given=True,
        ),
        (V,),
    ),
    "QuantizeAndDequantizeV4 QuantizeAndDequantizeV4Grad": Call(
        lambda x: raw.QuantizeAndDequantizeV4(
            input=x, input_min=tf.constant(0.0, x.dtype), input_max=tf.constant(0.5, x.dtype), range_given=True
        ),
        (V,),
    ),
    "Real": Call(lambda x: raw.Real(input=cx(x) ** 2), (V,)),
    "ResizeBicubic ResizeBicubicGrad": Call(lambda x: raw.ResizeBicubic(images=x, size=[4, 4]), (IMAGE,)),
    "ResizeBicubic up": Call(lambda x: raw.ResizeBicubic(images=x, size=[6, 7], half_pixel_centers=True), (IMAGE,)),
    "ResizeBilinear ResizeBilinearGrad": Call(lambda x: raw.ResizeBilinear(images=x, size=[4, 4]), (IMAGE,)),
    "ResizeNearestNeighbor ResizeNearestNeighborGrad": Call(
        lambda x: raw.ResizeNearestNeighbor(images=x, size=[4, 4]), (IMAGE,)
    ),
    "ResizeNearestNeighbor up": Call(
        lambda x: raw.ResizeNearestNeighbor(images=x, size=[6, 7], half_pixel_centers=True), (IMAGE,)
    ),
    "Reverse": Call(lambda x: raw.Reverse(tensor=x, dims=[True, False]), (M,)),
    "ReverseSequence": Call(lambda x: raw.ReverseSequence(input=x, seq_lengths=[1, 2, 3, 4], seq_dim=1), (M,)),
    "ReverseV2": Call(lambda x: raw.ReverseV2(tensor=x, axis=[-1]), (M,)),
    "ReverseV2 both": Call(lambda x: raw.ReverseV2(tensor=x, axis=[-2, 1]), (M,)),
    "RFFT": Call(lambda x: parts(raw.RFFT(input=x, fft_length=[4], Tcomplex=tf.complex128) ** 2), (M,)),
    "RFFT2D": Call(lambda x: parts(raw.RFFT2D(input=x, fft_length=[4, 4], Tcomplex=tf.complex128) ** 2), (M,)),
    "RGBToHSV": Call(lambda x: raw.RGBToHSV(images=x), ((2, 3),)),
    "Roll": Call(lambda x: raw.Roll(input=x, shift=[1], axis=[-1]), (M,)),
    "ScaleAndTranslate ScaleAndTranslateGrad": Call(
        lambda x: raw.ScaleAndTranslate(images=x, size=[4, 4], scale=[1.1, 0.9], translation=[0.2, 0.1]), (IMAGE,)
    ),
    "ScatterNd": Call(lambda x: raw.ScatterNd(indices=[[2], [0], [2], [3]], updates=x, shape=[4, 4]), (M,)),
    "ScatterNdNonAliasingAdd": Call(
        lambda x, y: raw.ScatterNdNonAliasingAdd(input=x, indices=[[2], [0]], updates=y),
        (
            M,
            (2, 4),
        ),
    ),
    "SegmentMax": Call(lambda x: raw.SegmentMax(data=x, segment_ids=SEGMENTS), (M,)),
    "SegmentMean": Call(lambda x: raw.SegmentMean(data=x, segment_ids=SEGMENTS), (M,)),
    "SegmentMin": Call(lambda x: raw.SegmentMin(data=x, segment_ids=SEGMENTS), (M,)),
    "SegmentProd": Call(lambda x: raw.SegmentProd(data=x, segment_ids=SEGMENTS), (M,)),
    "SegmentSum": Call(lambda x: raw.SegmentSum(data=x, segment_ids=SEGMENTS), (M,)),
    "SegmentSum same": Call(lambda x: raw.SegmentSum(data=x, segment_ids=[0, 1, 2, 3]), (M,)),
    "SelfAdjointEigV2": Call(lambda x: raw.SelfAdjointEigV2(input=definite(x))[0], (SQUARE,)),
    "SelfAdjointEigV2 vectors": Call(lambda x: raw.SelfAdjointEigV2(input=definite(x))[1] ** 2, (SQUARE,)),
    "Slice all": Call(lambda x: raw.Slice(input=x, begin=[0, 0], size=[4, 4]), (M,)),
    "Softmax": Call(lambda x: raw.Softmax(logits=x), (M,)),
    "SoftmaxCrossEntropyWithLogits": Call(
        lambda x, y: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y)[0],
        (
            M,
            M,
        ),
    ),
    "SpaceToBatch": Call(lambda x: raw.SpaceToBatch(input=x, paddings=[[0, 0], [0, 0]], block_size=2), ((1, 4, 4, 1),)),
    "SpaceToBatchND": Call(lambda x: raw.SpaceToBatchND(input=x, block_shape=[2], paddings=[[0, 0]]), ((2, 4, 2),)),
    "SpaceToDepth": Call(lambda x: raw.SpaceToDepth(input=x, block_size=2), (IMAGE,)),
    "SparseAdd": Call(
        lambda v, w: raw.SparseAdd(
            a_indices=[[0, 0], [0, 1], [1, 0]],
            a_values=v,
            a_shape=[2, 2],
            b_indices=[[0, 0], [1, 0], [1, 1]],
            b_values=w,
            b_shape=[2, 2],
            thresh=tf.constant(0.0, v.dtype),
        )[1],
        (
            (3,),
            (3,),
        ),
    ),
    "SparseDenseCwiseDiv": Call(
        lambda v, y: raw.SparseDenseCwiseDiv(
            sp_indices=[[0, 0], [0, 1], [1, 0]], sp_values=v, sp_shape=[2, 2], dense=y
        ),
        (
            (3,),
            (2, 2),
        ),
    ),
    "SparseDenseCwiseMul": Call(
        lambda v, y: raw.SparseDenseCwiseMul(
            sp_indices=[[0, 0], [0, 1], [1, 0]], sp_values=v, sp_shape=[2, 2], dense=y
        ),
        (
            (3,),
            (2, 2),
        ),
    ),
    "SparseFillEmptyRows SparseFillEmptyRowsGrad": Call(
        lambda v, d: raw.SparseFillEmptyRows(
            indices=[[0, 0], [0, 1], [2, 0]], values=v, dense_shape=[3, 2], default_value=d
        )[1],
        (
            (3,),
            (),
        ),
    ),
    "SparseMatMul": Call(
        lambda x, y: raw.SparseMatMul(a=x, b=y),
        (
            SQUARE,
            SQUARE,
        ),
    ),
    "SparseReduceSum": Call(
        lambda v: raw.SparseReduceSum(
            input_indices=[[0, 1], [1, 0], [2, 2]], input_values=v, input_shape=[3, 3], reduction_axes=[0]
        ),
        ((3,),),
    ),
    "SparseReorder": Call(
        lambda v: raw.SparseReorder(input_indices=[[2, 2], [0, 1], [1, 0]], input_values=v, input_shape=[3, 3])[1],
        ((3,),),
    ),
    "SparseSegmentMean SparseSegmentMeanGrad": Call(
        lambda x: raw.SparseSegmentMean(data=x, indices=[0, 1, 3, 2], segment_ids=SEGMENTS), (M,)
    ),
    "SparseSegmentMeanWithNumSegments": Call(
        lambda x: raw.SparseSegmentMeanWithNumSegments(
            data=x, indices=[0, 1, 3, 2], segment_ids=SEGMENTS, num_segments=4
        ),
        (M,),
    ),
    "SparseSegmentSqrtN SparseSegmentSqrtNGrad": Call(
        lambda x: raw.SparseSegmentSqrtN(data=x, indices=[0, 1, 3, 2], segment_ids=SEGMENTS), (M,)
    ),
    "SparseSegmentSqrtNWithNumSegments": Call(
        lambda x: raw.SparseSegmentSqrtNWithNumSegments(
            data=x, indices=[0, 1, 3, 2], segment_ids=SEGMENTS, num_segments=4
        ),
        (M,),
    ),
    "SparseSegmentSum SparseSegmentSumGrad": Call(
        lambda x: raw.SparseSegmentSum(data=x, indices=[0, 1, 3, 2], segment_ids=SEGMENTS), (M,)
    ),
    "SparseSegmentSumWithNumSegments": Call(
        lambda x: raw.SparseSegmentSumWithNumSegments(
            data=x, indices=[0, 1, 3, 2], segment_ids=SEGMENTS, num_segments=4
        ),
        (M,),
    ),
    "SparseSlice": Call(
        lambda v: raw.SparseSlice(indices=[[0, 0], [0, 1], [1, 0]], values=v, shape=[2, 2], start=[0, 0], size=[1, 2])[
            1
        ],
        ((3,),),
    ),
    "SparseSoftmax": Call(
        lambda v: raw.SparseSoftmax(sp_indices=[[0, 0], [0, 1], [1, 0]], sp_values=v, sp_shape=[2, 2]), ((3,),)
    ),
    "SparseSoftmaxCrossEntropyWithLogits": Call(
        lambda x: raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=[1, 0, 2, 3])[0], (M,)
    ),
    "SparseTensorDenseAdd": Call(
        lambda v, y: raw.SparseTensorDenseAdd(a_indices=[[0, 0], [0, 1], [1, 0]], a_values=v, a_shape=[2, 2], b=y),
        (
            (3,),
            (2, 2),
        ),
    ),
    "SparseTensorDenseMatMul": Call(
        lambda v, y: raw.SparseTensorDenseMatMul(a_indices=[[0, 1], [1, 0], [2, 2]], a_values=v, a_shape=[3, 3], b=y),
        (
            (3,),
            SQUARE,
        ),
    ),
    "SparseToDense": Call(
        lambda v: raw.SparseToDense(
            sparse_indices=[[0], [2], [3]], output_shape=[4], sparse_values=v, default_value=tf.constant(0.0, v.dtype)
        ),
        ((3,),),
    ),
    "Split": Call(lambda x: raw.Split(axis=-1, value=x, num_split=2)[1], (M,)),
    "SplitV": Call(lambda x: raw.SplitV(value=x, size_splits=[1, 3], axis=-1, num_split=2)[1], (M,)),
    "Squeeze": Call(lambda x: raw.Squeeze(input=x, axis=[-1]), ((4, 1),)),
    "StatelessParameterizedTruncatedNormal": Call(
        lambda m, s: raw.StatelessParameterizedTruncatedNormal(
            shape=[5], seed=[1, 2], means=m, stddevs=s, minvals=tf.zeros_like(m) - 1, maxvals=tf.ones_like(m)
        ),
        (
            V,
            V,
        ),
    ),
    "StridedSlice all": Call(lambda x: x[:, :], (M,)),
    "StridedSliceGrad": Call(
        lambda x: raw.StridedSliceGrad(shape=[6, 4], begin=[1, 0], end=[5, 4], strides=[1, 1], dy=x), (M,)
    ),
    "Svd": Call(lambda x: raw.Svd(input=regular(x))[0], (SQUARE,)),
    "Svd vectors": Call(lambda x: raw.Svd(input=regular(x))[1] ** 2, (SQUARE,)),
    "TensorArray gather": Call(lambda x: tf.TensorArray(x.dtype, 4).unstack(x).gather([2, 0]), (M,)),
    "TensorArray gather 3": Call(lambda x: tf.TensorArray(x.dtype, 4).unstack(x).gather([2, 0, 1]), (M,)),
    "TensorArray scatter": Call(lambda x: tf.TensorArray(x.dtype, 4).scatter([2, 0, 1, 3], x).stack(), (M,)),
    "TensorListFromTensor TensorListStack": Call(
        lambda x: raw.TensorListStack(
            input_handle=as_list(x), element_shape=[4], element_dtype=x.dtype, num_elements=4
        ),
        (M,),
    ),
    "TensorListGather": Call(
        lambda x: raw.TensorListGather(
            input_handle=as_list(x), indices=[2, 0], element_shape=[4], element_dtype=x.dtype
        ),
        (M,),
    ),
    "TensorListGetItem": Call(
        lambda x: raw.TensorListGetItem(input_handle=as_list(x), index=1, element_shape=[4], element_dtype=x.dtype),
        (M,),
    ),
    "TensorListPopBack": Call(
        lambda x: raw.TensorListPopBack(input_handle=as_list(x), element_shape=[4], element_dtype=x.dtype)[1], (M,)
    ),
    "TensorListPushBack": Call(
        lambda x: raw.TensorListStack(
            input_handle=raw.TensorListPushBack(input_handle=as_list(x), tensor=x[0] * x[1]),
            element_shape=[4],
            element_dtype=x.dtype,
        ),
        (M,),
    ),
    "TensorListScatterV2": Call(
        lambda x: raw.TensorListStack(
            input_handle=raw.TensorListScatterV2(
                tensor=x, indices=[2, 0, 1, 3], element_shape=tf.constant([4]), num_elements=4
            ),
            element_shape=[4],
            element_dtype=x.dtype,
        ),
        (M,),
    ),
    "TensorListSetItem": Call(
        lambda x: raw.TensorListStack(
            input_handle=raw.TensorListSetItem(input_handle=as_list(x), index=1, item=x[0] * x[1]),
            element_shape=[4],
            element_dtype=x.dtype,
        ),
        (M,),
    ),
    "TensorScatterAdd": Call(
        lambda x, y: raw.TensorScatterAdd(tensor=x, indices=[[2], [0]], updates=y),
        (
            M,
            (2, 4),
        ),
    ),
    "TensorScatterMax": Call(
        lambda x, y: raw.TensorScatterMax(tensor=x, indices=[[2], [0]], updates=y),
        (
            M,
            (2, 4),
        ),
    ),
    "TensorScatterMin": Call(
        lambda x, y: raw.TensorScatterMin(tensor=x, indices=[[2], [0]], updates=y),
        (
            M,
            (2, 4),
        ),
    ),
    "TensorScatterSub": Call(
        lambda x, y: raw.TensorScatterSub(tensor=x, indices=[[2], [0]], updates=y),
        (
            M,
            (2, 4),
        ),
    ),
    "TensorScatterUpdate": Call(
        lambda x, y: raw.TensorScatterUpdate(tensor=x, indices=[[2], [0]], updates=y),
        (
            M,
            (2, 4),
        ),
    ),
    "TensorScatterUpdate all": Call(
        lambda x, y: raw.TensorScatterUpdate(tensor=x, indices=[[2], [0], [1], [3]], updates=y),
        (
            M,
            (4, 4),
        ),
    ),
    "TensorStridedSliceUpdate": Call(
        lambda x, y: raw.TensorStridedSliceUpdate(input=x, begin=[0], end=[2], strides=[1], value=y),
        (
            M,
            (2, 4),
        ),
    ),
    "Tile one": Call(lambda x: raw.Tile(input=x, multiples=[1, 1]), (M,)),
    "TopKV2": Call(lambda x: raw.TopKV2(input=x, k=2)[0], (M,)),
    "Transpose same": Call(lambda x: raw.Transpose(x=x, perm=[0, 1]), (M,)),
    "TridiagonalMatMul": Call(
        lambda a, y: raw.TridiagonalMatMul(superdiag=a, maindiag=a * a, subdiag=a, rhs=y),
        (
            (1, 4),
            (4, 4),
        ),
    ),
    "TridiagonalSolve": Call(
        lambda d, y: tf.linalg.tridiagonal_solve(
            d + tf.constant([[0.0], [3.0], [0.0]], d.dtype), y, partial_pivoting=True
        ),
        (
            (3, 4),
            (4, 2),
        ),
    ),
    "UnsortedSegmentMax": Call(
        lambda x: raw.UnsortedSegmentMax(data=x, segment_ids=[1, 0, 1, 0], num_segments=2), (M,)
    ),
    "UnsortedSegmentMin": Call(
        lambda x: raw.UnsortedSegmentMin(data=x, segment_ids=[1, 0, 1, 0], num_segments=2), (M,)
    ),
    "UnsortedSegmentProd": Call(
        lambda x: raw.UnsortedSegmentProd(data=x, segment_ids=[1, 0, 1, 0], num_segments=2), (M,)
    ),
    "UnsortedSegmentSum": Call(
        lambda x: raw.UnsortedSegmentSum(data=x, segment_ids=[1, 0, 1, 3], num_segments=4), (M,)
    ),
    "Zeta": Call(lambda x: raw.Zeta(x=2 * tf.ones_like(x), q=x), (V,)),
}
