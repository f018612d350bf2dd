"""Which of the numbers that enter a kernel may reach its results, whatever values other operands have.

A kernel that is in no table may choose by values: which element it reads, which branch it takes.
"""

from collections.abc import Sequence

# fmt: off
# Each number of the result depends on those at its own place, which are broadcast.
_ELEMENTWISE = """
Abs Acos Acosh Add AddV2 Asin Asinh Atan Atan2 Atanh CheckNumerics ClipByValue Conj Cos Cosh Digamma Div DivNoNan Elu
EluGrad EnsureShape Erf Erfc Erfinv Exp Expm1 Identity Inv InvGrad LeakyRelu LeakyReluGrad Lgamma Log Log1p Maximum
Minimum Mul MulNoNan Ndtri Neg Pow PreventGradient RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad
Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid SigmoidGrad Sin Sinh Softplus SoftplusGrad Softsign SoftsignGrad
Sqrt SqrtGrad Square SquaredDifference StopGradient Sub Tan Tanh TanhGrad Xdivy Xlog1py Xlogy
"""
# Their results depend on the shapes of their operands alone.
OF_SHAPES = frozenset(["OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"])
# They move, add and multiply numbers, so that NaN passes. The numbers are all operands, or those at these places; the
# others say where to, and must follow from shapes and constants.
_ALL = """
AddN BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd Complex Conv2D DepthwiseConv2dNative Einsum IdentityN MatMul
"""
_FIRST = """
AvgPool BatchToSpaceND BiasAddGrad BroadcastTo Cast ConjugateTranspose Cumsum DepthToSpace Diag DiagPart ExpandDims
FFT FFT2D FFT3D Gather GatherNd GatherV2 IFFT IFFT2D IFFT3D IRFFT IRFFT2D Imag MatrixBandPart MatrixDiag MatrixDiagPart
Mean MirrorPad MirrorPadGrad Pad RFFT RFFT2D Real Reshape Reverse ReverseSequence ReverseV2 Roll SegmentSum SegmentSumV2
Slice SpaceToBatchND SpaceToDepth SplitV Squeeze StridedSlice Sum Tile Transpose Unpack UnsortedSegmentSum
"""
_AT: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_FIRST.split(), (0,)),
    **dict.fromkeys(("AvgPoolGrad", "ScatterNd", "Split"), (1,)),
    **dict.fromkeys(("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput"), (1, 2)),
    **dict.fromkeys(("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter"), (0, 2)),
    **dict.fromkeys(("MatrixDiagPartV2", "MatrixDiagPartV3", "PadV2"), (0, 2)),
    **dict.fromkeys(("MatrixDiagV2", "MatrixDiagV3"), (0, 4)),
    **dict.fromkeys(("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3"), (0, 1)),
    **dict.fromkeys(("TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate"), (0, 2)),
    "StridedSliceGrad": (4,),
}
# fmt: on
ELEMENTWISE, _MIXED = frozenset(_ELEMENTWISE.split()), frozenset(_ALL.split())


def numbers_of(kernel: str, operands: int) -> Sequence[int] | None:
    """Return the places of the operands that a kernel moves, adds or multiplies; ``None`` for any other kernel."""
    match kernel:
        case "ConcatV2":
            return range(operands - 1)
        case "DynamicStitch" | "ParallelDynamicStitch":
            return range(operands // 2, operands)
        case "Pack":
            return range(operands)
        case _:
            return range(operands) if kernel in _MIXED else _AT.get(kernel)
