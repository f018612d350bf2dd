"""How TensorFlow's operations round, by type."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Operations that move, select or compare numbers, or change their sign, round nothing.
EXACT = _names("""
Abs BatchToSpaceND Bitcast BroadcastTo Case Cast Ceil CheckNumerics ClipByValue Complex Concat ConcatV2 Conj
ConjugateTranspose DepthToSpace DynamicPartition DynamicStitch EnsureShape ExpandDims Fill Floor Gather GatherNd
GatherV2 Identity IdentityN If Imag LinSpace MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3
MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 Max MaxPool Maximum Min Minimum MirrorPad Neg
OneHot OnesLike Pack Pad PadV2 ParallelDynamicStitch Placeholder PlaceholderWithDefault PreventGradient Range Real Relu
Relu6 Relu6Grad ReluGrad Reshape Reverse ReverseSequence ReverseV2 Rint Roll Round ScatterNd Select SelectV2 Sign Slice
SpaceToBatchND SpaceToDepth Split SplitV Squeeze StatelessCase StatelessIf StatelessWhile StopGradient StridedSlice
StridedSliceGrad TensorListFromTensor TensorListGetItem TensorListPopBack TensorListPushBack TensorListSetItem
TensorListStack TensorScatterUpdate Tile TopKV2 Transpose Unpack Where While ZerosLike
""")
# Operations whose results are off by a few roundings of themselves.
ARITHMETIC = _names("""
Acos Acosh Add AddV2 Angle Asin Asinh Atan Atan2 Atanh ComplexAbs Cos Cosh Div DivNoNan Elu Erf Erfc Exp Expm1 Inv Log
Log1p Mul MulNoNan Pow RealDiv Reciprocal Rsqrt Sigmoid Sin Sinh Softplus Softsign Sqrt Square SquaredDifference Sub Tan
Tanh Xdivy Xlog1py Xlogy
""")
# Those of them whose results are off by roundings of themselves if they are complex, in the real and in the imaginary
# part: a product of complex numbers may cancel inside.
COMPLEX_SUMS = _names("""
Add AddV2 Sub
""")
# Those of them whose results on whole numbers are whole numbers, and exact.
WHOLE = _names("""
Add AddV2 Mul Pow Square SquaredDifference Sub
""")
# Operations that subtract numbers of size 1 or more inside.
OF_SIZE_ONE = _names("""
Digamma Erfinv Lgamma LogSoftmax Ndtri SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits
""")
# Operations that keep partial results in the dtype of their numbers.
CUMULATIVE = _names("""
Cumprod Cumsum SegmentMean SegmentProd SegmentSum UnsortedSegmentSum
""")
# The error of matrix algorithms is relative to the largest number of a matrix.
OF_MATRICES = _names("""
BandedTriangularSolve Cholesky CholeskyGrad Eig LogMatrixDeterminant Lu MatrixDeterminant MatrixExponential
MatrixInverse MatrixLogarithm MatrixSolve MatrixSolveLs MatrixSquareRoot MatrixTriangularSolve Qr SelfAdjointEigV2 Svd
TridiagonalSolve
""")
# Gradients that are 1 less a rounded result.
OF_SATURATED = _names("""
SigmoidGrad TanhGrad
""")
