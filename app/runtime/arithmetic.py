"""Detection of graphs whose run time follows from the shapes of their inputs, and that never wait.

Any other kernel may sleep, loop as often as values require, or come from an op author. Graphs that do only arithmetic
are a part of these: XLA computes them as TensorFlow's kernels do.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import tensorflow as tf

from ops import bounded_kernels

# fmt: off
KERNELS = frozenset([
    # structure
    "BroadcastGradientArgs", "BroadcastTo", "Cast", "ConcatV2", "Const", "ExpandDims", "Fill", "Identity", "IdentityN",
    "NoOp", "OnesLike", "Pack", "Placeholder", "PreventGradient", "Range", "Rank", "Reshape", "Shape", "Size", "Slice",
    "Squeeze", "StopGradient", "StridedSlice", "Tile", "Transpose", "Unpack", "ZerosLike",
    # reductions and products
    "All", "Any", "ArgMax", "ArgMin", "BatchMatMulV2", "BiasAdd", "BiasAddGrad", "Cumprod", "Cumsum", "LogSoftmax",
    "MatMul", "Max", "Mean", "Min", "Prod", "Softmax", "Sum",
    # arithmetic
    "Abs", "Add", "AddN", "AddV2", "Ceil", "ClipByValue", "Div", "DivNoNan", "Floor", "FloorDiv", "FloorMod", "Inv",
    "Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv", "Reciprocal", "Rint", "Round", "Rsqrt", "Sign",
    "Sqrt", "Square", "SquaredDifference", "Sub",
    # functions
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cos", "Cosh", "Digamma", "Elu", "EluGrad", "Erf",
    "Erfc", "Erfinv", "Exp", "Expm1", "LeakyRelu", "LeakyReluGrad", "Lgamma", "Log", "Log1p", "Relu", "Relu6",
    "Relu6Grad", "ReluGrad", "Sigmoid", "SigmoidGrad", "Sin", "Sinh", "Softplus", "SoftplusGrad", "Softsign",
    "SoftsignGrad", "Tan", "Tanh", "TanhGrad", "Xdivy", "Xlog1py", "Xlogy",
    # selection
    "Equal", "Greater", "GreaterEqual", "IsFinite", "IsInf", "IsNan", "Less", "LessEqual", "LogicalAnd", "LogicalNot",
    "LogicalOr", "NotEqual", "Select", "SelectV2",
])
# fmt: on


# fmt: off
# Kernels of which XLA computes something else, such as NaN where they multiply a gradient of 0 by infinity:
# tests/runtime/test_arithmetic.py compares those of both tables.
OF_KERNELS_ALONE = frozenset([
    "InvGrad", "ReciprocalGrad", "RsqrtGrad", "Selu", "SeluGrad", "SqrtGrad",
])
# fmt: on


# fmt: off
# Kernels that are not arithmetic, and whose time follows from shapes too, or has a small bound. They may refuse values.
BOUNDED = frozenset([
    # structure
    "Assert", "Bincount", "BroadcastArgs", "CheckNumerics", "CheckNumericsV2", "ConcatOffset", "Concat", "DepthToSpace",
    "Diag", "DiagPart", "DynamicStitch", "EnsureShape", "Gather", "GatherNd", "GatherV2", "InvertPermutation",
    "LinSpace", "MatrixBandPart", "MatrixDiag", "MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3",
    "MatrixDiagV2", "MatrixDiagV3", "MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", "MirrorPad", "MirrorPadGrad",
    "OneHot", "Pad", "PadV2", "Reverse", "ReverseSequence", "ReverseV2", "Roll", "ScatterNd",
    "SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum", "SegmentSumV2", "ShapeN", "SpaceToDepth",
    "Split", "SplitV", "StridedSliceGrad", "TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate", "TopK",
    "TopKV2", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum", "Where",
    # linear algebra: iterations of Eigen's decompositions have a bound for each number
    "BatchMatMul", "BatchMatMulV3", "Cholesky", "CholeskyGrad", "Einsum", "LogMatrixDeterminant", "MatrixDeterminant",
    "MatrixInverse", "MatrixSolve", "MatrixSolveLs", "MatrixTriangularSolve", "ConjugateTranspose", "Qr",
    "SelfAdjointEigV2", "Svd",
    # layers
    "AvgPool", "AvgPoolGrad", "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput", "L2Loss", "MaxPool", "MaxPoolGrad",
    "MaxPoolGradGrad", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",
    # transforms and complex numbers
    "Angle", "Complex", "ComplexAbs", "Conj", "FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D", "IRFFT", "IRFFT2D",
    "Imag", "RFFT", "RFFT2D", "Real",
    # functions: their series have a bound, unlike those of Betainc, Igamma, Polygamma and Zeta
    "BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "BesselJ0", "BesselJ1", "BesselK0", "BesselK0e", "BesselK1",
    "BesselK1e", "BesselY0", "BesselY1", "Dawsn", "Expint", "FresnelCos", "FresnelSin", "Ndtri", "NextAfter", "Spence",
    # integers and selection
    "ApproximateEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Bitcast", "EuclideanNorm", "Invert",
    "LeftShift", "Mod", "RightShift", "TruncateDiv", "TruncateMod",
])
# fmt: on

# The operands of a kernel from which the size of its result follows.
SIZES = {
    **dict.fromkeys(["Fill"], (0,)),
    **dict.fromkeys(["Bincount", "BroadcastTo", "MirrorPad", "OneHot", "Pad", "PadV2", "Tile"], (1,)),
    **dict.fromkeys(["SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum", "SegmentSumV2"], (1,)),
    **dict.fromkeys([f"UnsortedSegment{rule}" for rule in ("Max", "Min", "Prod", "Sum")], (2,)),
    **dict.fromkeys(["LinSpace", "ScatterNd"], (2,)),
    "Range": (0, 1, 2),
}
# Their results follow from shapes, whatever the values are.
OF_SHAPES = frozenset(["Const", "Rank", "Shape", "ShapeN", "Size"])

# What calls another graph, which is in the library of the graph.
CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient"])


def is_arithmetic(graph: tf.Graph) -> bool:
    """Report whether a graph does only arithmetic, with kernels of C++ pages that say so, and calls no other."""
    return _kernels(graph, with_library=False) <= KERNELS | bounded_kernels()


def is_bounded(graph: tf.Graph) -> bool:
    """Report whether all kernels of a graph, and of those that it calls, end in a time that follows from shapes."""
    if not _kernels(graph, with_library=True) <= KERNELS | OF_KERNELS_ALONE | BOUNDED | CALLS | bounded_kernels():
        return False
    definition = graph.as_graph_def()
    called = definition.library.function
    functions = [(each.node_def, [arg.name for arg in each.signature.input_arg]) for each in called]
    return not any(_has_sizes_of_values(nodes, names) for nodes, names in ((definition.node, []), *functions))


def _has_sizes_of_values(nodes: Iterable[Any], arguments: Iterable[str]) -> bool:
    """Report whether the size of a tensor in a graph may follow from the values of its placeholders or arguments.

    The nodes of a graph follow those that they depend on.
    """
    of_values = set(arguments)
    for node in nodes:
        inputs = [name.partition(":")[0] in of_values for name in node.input if not name.startswith("^")]
        if any(inputs[operand] for operand in SIZES.get(node.op, ())):
            return True
        if node.op == "Placeholder" or (any(inputs) and node.op not in OF_SHAPES):
            of_values.add(node.name)
    return False


def _kernels(graph: tf.Graph, *, with_library: bool) -> set[str]:
    definition = graph.as_graph_def()
    called = chain.from_iterable(function.node_def for function in definition.library.function)
    return {node.op for node in chain(definition.node, called if with_library else ())}
