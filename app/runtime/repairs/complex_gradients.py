"""Gradients of TensorFlow 2.21 that are wrong for complex numbers: an op that needs one of them fails.

Most of them forget to conjugate. The gradients of all kernels that take complex numbers were compared with numeric
derivatives, at both orders. A ``custom_gradient`` or an override map around such a kernel does not call its gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Private, because the public API cannot replace a gradient.
from tensorflow.python.framework.ops import gradient_registry

from ops import OpFault, Tensor

Gradient = Callable[..., Any]

WRONG = (
    *("EuclideanNorm", "MatrixDeterminant", "MatrixSquareRoot", "MulNoNan"),
    *("SquaredDifference", "TridiagonalSolve", "Xdivy", "Xlog1py", "Xlogy"),
)
SIGN = "LogMatrixDeterminant"
"""Its gradient leaves out that of the sign, which a real matrix has not.

It takes log |det|, whose imaginary part is always 0, for a holomorphic function: that part has no gradient here.
"""
VECTORS = "Svd"
"""The gradient of its gradient is wrong, unless the singular vectors count for nothing."""
_ENTRY = "type"


def install() -> None:
    """Replace the wrong gradients, for complex numbers only."""
    guards: dict[str, Callable[[str, Gradient], Gradient]] = dict.fromkeys(WRONG, _refusing)
    guards |= {SIGN: _refusing_the_sign, VECTORS: _refusing_its_own_gradient}
    for name, guard in guards.items():
        entry = gradient_registry._registry[name]
        if not hasattr(entry[_ENTRY], "__wrapped__"):
            guarded = guard(name, entry[_ENTRY])
            guarded.__wrapped__ = entry[_ENTRY]  # pyright: ignore[reportFunctionMemberAccess] - marks the guard
            entry[_ENTRY] = guarded


def _fault(what: str, dtype: str) -> OpFault:
    cure = "a custom_gradient around it, or other functions"
    function = f"the gradient of {what} in TensorFlow {tf.__version__}"
    return OpFault(function, "gradient", expected=cure, got=dtype, message="is wrong for complex numbers")


def _complex_dtype(node: Any, cotangents: Sequence[Tensor | None]) -> str:
    """Return the complex dtype of a node, "" if it has none; in eager mode, it may lack inputs that nothing needs."""
    tensors = (*(node.inputs or ()), *cotangents)
    return next((x.dtype.name for x in tensors if x is not None and x.dtype.is_complex), "")


def _refusing(name: str, gradient: Gradient) -> Gradient:
    def guarded(node: Any, *cotangents: Tensor | None) -> Any:
        if dtype := _complex_dtype(node, cotangents):
            raise _fault(name, dtype)
        return gradient(node, *cotangents)

    return guarded


def _refusing_the_sign(name: str, gradient: Gradient) -> Gradient:
    def guarded(node: Any, sign: Tensor | None, size: Tensor | None) -> Any:
        if (dtype := _complex_dtype(node, (sign, size))) and not is_zero(sign):
            raise _fault(f"the sign of {name}", dtype)
        if dtype and size is not None:
            size = tf.cast(tf.math.real(size), dtype)
        return gradient(node, sign, size)

    return guarded


def is_zero(cotangent: Any) -> bool:
    """Return whether a cotangent is missing, or the zeros that TensorFlow puts in place of a missing one."""
    if cotangent is None:
        return True
    if not isinstance(cotangent, tf.Tensor):
        return False  # slices, of numbers that count
    value = tf.get_static_value(cotangent)
    return cotangent.op.type == "ZerosLike" if value is None else not value.any()


def _refusing_its_own_gradient(name: str, gradient: Gradient) -> Gradient:
    def guarded(node: Any, *cotangents: Tensor | None) -> Any:
        found, dtype = gradient(node, *cotangents), _complex_dtype(node, cotangents)
        has_vectors = node.get_attr("compute_uv") and not all(map(is_zero, cotangents[1:]))
        return _once(found, _fault(f"the gradient of {name}", dtype)) if dtype and has_vectors else found

    return guarded


def _once(x: Tensor, fault: OpFault) -> Tensor:
    """Return a tensor whose gradient raises ``fault``."""

    @tf.custom_gradient
    def same(x: Tensor) -> Any:
        def refuse(dy: Tensor) -> Any:
            raise fault

        return tf.identity(x), refuse

    return same(x)
