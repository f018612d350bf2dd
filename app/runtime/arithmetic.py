"""Detection of graphs that do only arithmetic.

Their run time follows from the shapes of their inputs, and they never block. Any other kernel may sleep, loop as often
as values require, or come from an op author.
"""

import tensorflow as tf

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


def is_arithmetic(graph: tf.Graph) -> bool:
    """Report whether a graph, which must not call other graphs, has only these kernels."""
    return {node.op for node in graph.as_graph_def().node} <= KERNELS
