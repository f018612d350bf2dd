"""Which graphs do arithmetic, number by number, and nothing else.

They take a time that their size tells, wait for nobody and refuse nothing. Any other kernel may sleep, loop, check its
input, or be an author's own.
"""

import tensorflow as tf

# fmt: off
KERNELS = frozenset([
    # what holds a graph together
    "BroadcastGradientArgs", "BroadcastTo", "Cast", "Const", "Fill", "Identity", "IdentityN", "NoOp", "OnesLike",
    "Placeholder", "PreventGradient", "Reshape", "Shape", "StopGradient", "Sum", "ZerosLike",
    # arithmetic
    "Abs", "Add", "AddN", "AddV2", "Ceil", "ClipByValue", "Div", "DivNoNan", "Floor", "FloorDiv", "FloorMod", "Inv",
    "InvGrad", "Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad", "Rint",
    "Round", "Rsqrt", "RsqrtGrad", "Sign", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "Sub",
    # functions
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cos", "Cosh", "Digamma", "Elu", "EluGrad", "Erf",
    "Erfc", "Erfinv", "Exp", "Expm1", "LeakyRelu", "LeakyReluGrad", "Lgamma", "Log", "Log1p", "Relu", "Relu6",
    "Relu6Grad", "ReluGrad", "Selu", "SeluGrad", "Sigmoid", "SigmoidGrad", "Sin", "Sinh", "Softplus", "SoftplusGrad",
    "Softsign", "SoftsignGrad", "Tan", "Tanh", "TanhGrad", "Xdivy", "Xlog1py", "Xlogy",
    # choice
    "Equal", "Greater", "GreaterEqual", "IsFinite", "IsInf", "IsNan", "Less", "LessEqual", "LogicalAnd", "LogicalNot",
    "LogicalOr", "NotEqual", "Select", "SelectV2",
])
# fmt: on


def is_arithmetic(graph: tf.Graph) -> bool:
    """Tell whether a graph, which must call no other, has none but these kernels."""
    return {node.op for node in graph.as_graph_def().node} <= KERNELS
