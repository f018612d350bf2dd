"""Kernels of XLA that return wrong complex numbers in TensorFlow 2.21; a trace with one of them is refused.

Those of gradients forget to conjugate, and the eigenvalues of a Hermitian matrix are read as complex ones. All kernels
of one or two complex matrices were compared with TensorFlow's own; the others agree or are missing.
"""

from typing import Any

import tensorflow as tf

from app.errors import wrong
from app.runtime.kernels import nodes_of

WRONG = frozenset(("InvGrad", "ReciprocalGrad", "RsqrtGrad", "SelfAdjointEigV2", "SqrtGrad"))
_COMPLEX = frozenset((tf.complex64.as_datatype_enum, tf.complex128.as_datatype_enum))


def refuse_wrong_kernels(graph_def: Any, owner: str) -> None:
    """Raise ``Unprocessable`` for a graph with a kernel that XLA computes wrongly for complex numbers."""
    found = sorted({node.op for node in nodes_of(graph_def) if node.op in WRONG and node.attr["T"].type in _COMPLEX})
    if found:
        message = f"op {owner}: XLA's kernel {found[0]} is wrong for complex numbers in TensorFlow {tf.__version__}"
        raise wrong(("mode",), message, expected="graph, eager or v1", got="xla")
