"""Detection of graphs whose run time follows from the shapes of their inputs, and that never wait.

Any other kernel may sleep, loop as often as values require, or come from an op author. Graphs that do only arithmetic
are a part of these: XLA computes them as TensorFlow's kernels do.
"""

from itertools import chain

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
    "InvGrad", "Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad", "Rint",
    "Round", "Rsqrt", "RsqrtGrad", "Sign", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "Sub",
    # functions
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cos", "Cosh", "Digamma", "Elu", "EluGrad", "Erf",
    "Erfc", "Erfinv", "Exp", "Expm1", "LeakyRelu", "LeakyReluGrad", "Lgamma", "Log", "Log1p", "Relu", "Relu6",
    "Relu6Grad", "ReluGrad", "Selu", "SeluGrad", "Sigmoid", "SigmoidGrad", "Sin", "Sinh", "Softplus", "SoftplusGrad",
    "Softsign", "SoftsignGrad", "Tan", "Tanh", "TanhGrad", "Xdivy", "Xlog1py", "Xlogy",
    # selection
    "Equal", "Greater", "GreaterEqual", "IsFinite", "IsInf", "IsNan", "Less", "LessEqual", "LogicalAnd", "LogicalNot",
    "LogicalOr", "NotEqual", "Select", "SelectV2",
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
    # functions: their series have a bound
    "BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "BesselJ0", "BesselJ1", "BesselK0", "BesselK0e", "BesselK1",
    "BesselK1e", "BesselY0", "BesselY1", "Betainc", "Dawsn", "Expint", "FresnelCos", "FresnelSin", "Igamma",
    "IgammaGradA", "Igammac", "Ndtri", "NextAfter", "Polygamma", "Spence", "Zeta",
    # integers and selection
    "ApproximateEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Bitcast", "EuclideanNorm", "Invert",
    "LeftShift", "Mod", "RightShift", "TruncateDiv", "TruncateMod",
])
# fmt: on

# What calls another graph, which is in the library of the graph.
CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient"])


def is_arithmetic(graph: tf.Graph) -> bool:
    """Report whether a graph does only arithmetic, with kernels of C++ pages that say so, and calls no other."""
    return _kernels(graph, with_library=False) <= KERNELS | bounded_kernels()


def is_bounded(graph: tf.Graph) -> bool:
    """Report whether all kernels of a graph, and of those that it calls, end in a time that follows from shapes."""
    return _kernels(graph, with_library=True) <= KERNELS | BOUNDED | CALLS | bounded_kernels()


def _kernels(graph: tf.Graph, *, with_library: bool) -> set[str]:
    definition = graph.as_graph_def()
    called = chain.from_iterable(function.node_def for function in definition.library.function)
    return {node.op for node in chain(definition.node, called if with_library else ())}
