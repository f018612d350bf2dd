"""What is known about TensorFlow's kernels: how long each may take, and how it rounds.

A kernel that is in no table may sleep, loop as often as values require, or come from an op author, and rounds somehow.
The derivatives through those of the table were compared in graphs and in mode eager, for one direction and for many;
other kernels are tried (``app.runtime.kernel_trial``).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import tensorflow as tf

from app.errors import wrong
from ops import bounded_kernels

Time: TypeAlias = Literal[
    "arithmetic",  # it follows from shapes, and XLA computes the same
    "bounded",  # it follows from shapes too, or has a small bound, such as that of a series; values may be refused
    "unknown",
]
Rounding: TypeAlias = Literal[
    "exact",  # what moves, selects or compares numbers, or changes their sign
    "own",  # results are off by a few roundings of themselves
    "of size one",  # numbers of size 1 or more are subtracted inside
    "cumulative",  # partial results are kept in the dtype of the numbers
    "of matrices",  # the error is relative to the largest number of a matrix
    "of saturated",  # gradients that are 1 less a rounded result
    "of inputs",  # results are exact for inputs that are off, at best
]
WRONG_IN_XLA = frozenset(("InvGrad", "ReciprocalGrad", "RsqrtGrad", "SelfAdjointEigV2", "SqrtGrad"))
# XLA's compare numbers as bfloat16. Graphs that are made here have none of these, but a SavedModel may.
CHOOSE_WRONGLY_IN_XLA = frozenset(("MaxPoolGradGrad", "MaxPoolGradGradV2", "MaxPool3DGradGrad"))
_COMPLEX = frozenset((tf.complex64.as_datatype_enum, tf.complex128.as_datatype_enum))


class Kernel(NamedTuple):
    """A kernel of TensorFlow."""

    time: Time
    rounding: Rounding


# fmt: off
_TABLE: tuple[tuple[Time, Rounding, str], ...] = (
    ("arithmetic", "exact", """
Abs BroadcastTo Cast Ceil ClipByValue ConcatV2 ExpandDims Fill Floor Identity IdentityN Max Maximum Min Minimum Neg
OnesLike Pack Placeholder PreventGradient Range Relu Relu6 Relu6Grad ReluGrad Reshape Rint Round Select SelectV2 Sign
Slice Squeeze StopGradient StridedSlice Tile Transpose Unpack ZerosLike
    """),
    ("arithmetic", "own", """
Acos Acosh Add AddV2 Asin Asinh Atan Atan2 Atanh Cos Cosh Div DivNoNan Elu Erf Erfc Exp Expm1 Inv Log Log1p Mul
MulNoNan Pow RealDiv Reciprocal Rsqrt Sigmoid Sin Sinh Softplus Softsign Sqrt Square SquaredDifference Sub Tan Tanh
Xdivy Xlog1py Xlogy
    """),
    ("arithmetic", "of size one", """
Digamma Erfinv Lgamma LogSoftmax
    """),
    ("arithmetic", "cumulative", """
Cumprod Cumsum
    """),
    ("arithmetic", "of saturated", """
SigmoidGrad TanhGrad
    """),
    ("arithmetic", "of inputs", """
AddN All Any ArgMax ArgMin BatchMatMulV2 BiasAdd BiasAddGrad BroadcastGradientArgs Const EluGrad Equal FloorDiv
FloorMod Greater GreaterEqual IsFinite IsInf IsNan LeakyRelu LeakyReluGrad Less LessEqual LogicalAnd LogicalNot
LogicalOr MatMul Mean NoOp NotEqual Prod Rank Shape Size Softmax SoftplusGrad SoftsignGrad Sum
    """),
    ("bounded", "exact", """
Bitcast CheckNumerics Complex Concat Conj ConjugateTranspose DepthToSpace DynamicStitch EnsureShape Gather GatherNd
GatherV2 Imag LinSpace MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2
MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MaxPool MirrorPad OneHot Pad PadV2 Real Reverse
ReverseSequence ReverseV2 Roll ScatterNd SpaceToDepth Split SplitV StridedSliceGrad TensorScatterUpdate TopKV2 Where
    """),
    ("bounded", "own", """
Angle ComplexAbs
    """),
    ("bounded", "of size one", """
Ndtri SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits
    """),
    ("bounded", "cumulative", """
SegmentMean SegmentProd SegmentSum UnsortedSegmentSum
    """),
    ("bounded", "of matrices", """
Cholesky CholeskyGrad LogMatrixDeterminant MatrixDeterminant MatrixInverse MatrixSolve MatrixSolveLs
MatrixTriangularSolve Qr SelfAdjointEigV2 Svd
    """),
    ("bounded", "of inputs", """
ApproximateEqual Assert AvgPool AvgPoolGrad BatchMatMul BatchMatMulV3 BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0
BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Bincount BitwiseAnd BitwiseOr BitwiseXor
BroadcastArgs CheckNumericsV2 ConcatOffset Conv2D Conv2DBackpropFilter Conv2DBackpropInput Dawsn DepthwiseConv2dNative
DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Diag DiagPart Einsum EuclideanNorm Expint FFT
FFT2D FFT3D FresnelCos FresnelSin IFFT IFFT2D IFFT3D IRFFT IRFFT2D InvGrad Invert InvertPermutation L2Loss LeftShift
MaxPoolGrad MaxPoolGradGrad MirrorPadGrad Mod NextAfter RFFT RFFT2D ReciprocalGrad RightShift RsqrtGrad SegmentMax
SegmentMin SegmentSumV2 Selu SeluGrad ShapeN Spence SqrtGrad TensorScatterAdd TensorScatterSub TopK TruncateDiv
TruncateMod UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
    """),
    ("unknown", "exact", """
BatchToSpaceND Case DynamicPartition If ParallelDynamicStitch PlaceholderWithDefault SpaceToBatchND StatelessCase
StatelessIf StatelessWhile TensorListFromTensor TensorListGetItem TensorListPopBack TensorListPushBack
TensorListSetItem TensorListStack While
    """),
    ("unknown", "of inputs", """
ApproxTopK AvgPool3D AvgPool3DGrad BatchToSpace Betainc BiasAddV1 BlockLSTMGrad BlockLSTMV2 CTCLoss Conv3D
Conv3DBackpropFilterV2 Conv3DBackpropInputV2 CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage Cross
CumulativeLogsumexp Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput ExtractImagePatches ExtractVolumePatches
FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsGradient
FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient FractionalAvgPool FractionalAvgPoolGrad
FractionalMaxPool FractionalMaxPoolGrad FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3
FusedBatchNormV2 FusedBatchNormV3 Igamma IgammaGradA Igammac ImageProjectiveTransformV2 ImageProjectiveTransformV3
IsotonicRegression LRN LRNGrad ListDiff MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGradGradV2 MaxPoolGradV2
MaxPoolGradWithArgmax MaxPoolV2 MaxPoolWithArgmax NthElement OptionalFromValue OptionalGetValue OptionalNone Polygamma
QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 QuantizeAndDequantizeV4Grad RGBToHSV
ResizeBicubic ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad
ScaleAndTranslate ScaleAndTranslateGrad ScatterNdNonAliasingAdd SpaceToBatch SparseAdd SparseAddGrad SparseDenseCwiseAdd
SparseDenseCwiseDiv SparseDenseCwiseMul SparseFillEmptyRows SparseFillEmptyRowsGrad SparseMatMul SparseReduceSum
SparseReorder SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
SparseSegmentSqrtNGrad SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumGrad
SparseSegmentSumWithNumSegments SparseSlice SparseSliceGrad SparseSoftmax SparseTensorDenseAdd SparseTensorDenseMatMul
SparseToDense StatelessParameterizedTruncatedNormal TensorListElementShape TensorListGather TensorListLength
TensorListReserve TensorListScatterIntoExistingList TensorListScatterV2 TensorScatterMax TensorScatterMin
TensorStridedSliceUpdate TridiagonalMatMul Zeta
    """),
    ("unknown", "of matrices", """
BandedTriangularSolve Eig Lu MatrixExponential MatrixLogarithm MatrixSquareRoot TridiagonalSolve
    """),
)
# fmt: on
KERNELS = {name: Kernel(time, rounding) for time, rounding, names in _TABLE for name in names.split()}
UNKNOWN = Kernel("unknown", "of inputs")

# Of those that round by themselves: their complex results do in the real and in the imaginary part, while a product of
# complex numbers may cancel inside.
COMPLEX_SUMS = frozenset(["Add", "AddV2", "Sub"])
# Their results on whole numbers are whole numbers, and exact.
WHOLE = frozenset(["Add", "AddN", "AddV2", "Cumsum", "Mul", "Pow", "Square", "SquaredDifference", "Sub", "Sum"])
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
# Running sums along the axis that their second input is.
ALONG_AXIS = frozenset(["Cumprod", "Cumsum"])
# What calls another graph, which is in the library of the graph.
CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient"])
LOOPS = frozenset(["StatelessWhile", "While"])
# Loops and branches, whose graphs are in the library too.
CONTROL = LOOPS | {"Case", "If", "StatelessCase", "StatelessIf"}
# The kernels of tf.py_function and tf.numpy_function, and of the latter if the page declares that it has no state.
PYTHON = frozenset(["EagerPyFunc", "PyFunc", "PyFuncStateless"])
# What tests for NaN and infinity.
TESTS = frozenset(["IsFinite", "IsNan"])
# How the names of kernels begin that change the variable among their operands.
CHANGES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply", "Rng", "StatefulUniform")
# What the names of kernels contain that draw random numbers.
RANDOM = ("Random", "Multinomial", "TruncatedNormal", "StatefulUniform", "StatefulStandardNormal", "Rng")


def nodes_of(definition: Any) -> Iterator[Any]:
    """Yield the nodes of a graph's definition, and of the functions in its library."""
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def is_random(kernel: str) -> bool:
    """Return whether a kernel draws other random numbers at each call."""
    return any(word in kernel for word in RANDOM) and not kernel.startswith("Stateless")


# Any other kernel may sleep, loop as often as values require, or come from an op author. Graphs that do only
# arithmetic are a part of these: XLA computes them as TensorFlow's kernels do.

ARITHMETIC = frozenset(name for name, kernel in KERNELS.items() if kernel.time == "arithmetic")
BOUNDED = frozenset(name for name, kernel in KERNELS.items() if kernel.time != "unknown") | CALLS


def is_arithmetic(graph: tf.Graph) -> bool:
    """Report whether a graph does only arithmetic, with kernels of C++ pages that say so, and calls no other."""
    return {node.op for node in graph.as_graph_def().node} <= ARITHMETIC | bounded_kernels()


def is_bounded(graph: tf.Graph) -> bool:
    """Report whether all kernels of a graph, and of those that it calls, end in a time that follows from shapes."""
    definition = graph.as_graph_def()
    if not {node.op for node in nodes_of(definition)} <= BOUNDED | bounded_kernels():
        return False
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


# Those of gradients forget to conjugate, and the eigenvalues of a Hermitian matrix are read as complex ones. All
# kernels of one or two complex matrices were compared with TensorFlow's own; the others agree or are missing. Of real
# kernels, those of 450 functions were, in four dtypes.
def refuse_wrong_kernels(graph_def: Any, owner: str) -> None:
    """Raise ``Unprocessable`` for a graph with a kernel that XLA computes wrongly."""
    for node in nodes_of(graph_def):
        is_complex = node.op in WRONG_IN_XLA and node.attr["T"].type in _COMPLEX
        is_misread = node.op == "ResizeBilinearGrad" and node.attr["T"].type != tf.float32.as_datatype_enum
        if is_complex or is_misread or node.op in CHOOSE_WRONGLY_IN_XLA:
            which = " for complex numbers" if is_complex else " in this dtype" if is_misread else ""
            message = f"op {owner}: XLA's kernel {node.op} is wrong{which} in TensorFlow {tf.__version__}"
            raise wrong(("mode",), message, expected="graph, eager or v1", got="xla")
