"""Detection of graphs that do only arithmetic.

Their run time follows from the shapes of their inputs, and they never block. Any other kernel may sleep, loop as often
as values require, or come from an op author.
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


# What calls another graph, which is in the library of the graph.
CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient"])


def is_arithmetic(graph: tf.Graph, *, may_call: bool = False) -> bool:
    """Report whether a graph has only these kernels, and those of C++ pages that say the same of theirs.

    If it ``may_call`` other graphs, so must they; otherwise, it has no calls.
    """
    definition = graph.as_graph_def()
    called = chain.from_iterable(function.node_def for function in definition.library.function)
    kernels = {node.op for node in chain(definition.node, called if may_call else ())}
    return kernels - KERNELS - bounded_kernels() <= (CALLS if may_call else frozenset())
