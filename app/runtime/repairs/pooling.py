"""A correction of TensorFlow's second order of max pooling, whose kernels of TensorFlow 2.21 choose other numbers.

In a graph, where the result has the size of the cotangent, as at stride 1, they write it into the memory of a cotangent
that nothing else needs any more, and clear this memory before they read it: the result is 0. XLA's compares the numbers
as bfloat16: of two that differ by less than a part in 256, it may choose the smaller. XLA has none for float64, and
no mode has them for half precision. So they are arithmetic here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

# Private, because TensorFlow's gradients call these functions by their private names.
from tensorflow.python.ops import gen_nn_ops

from app.runtime.repairs.replacing import replace
from ops import Tensor

KERNELS = {
    "MaxPoolGradGrad": (gen_nn_ops.max_pool_grad_grad, gen_nn_ops.max_pool_grad),
    "MaxPoolGradGradV2": (gen_nn_ops.max_pool_grad_grad_v2, gen_nn_ops.max_pool_grad_v2),
    "MaxPool3DGradGrad": (gen_nn_ops.max_pool3d_grad_grad, gen_nn_ops.max_pool3d_grad),
}
"""The kernels: the functions that call them, and those that call their adjoints."""


def install() -> None:
    """Let every second order of max pooling be arithmetic; call this before any program is built."""
    for kernel, (function, adjoint) in KERNELS.items():
        if not hasattr(function, "__wrapped__"):
            replace(function, _arithmetic(adjoint), kernel)


def _arithmetic(adjoint: Any) -> Any:
    def mended(  # noqa: PLR0917 - these are TensorFlow's
        orig_input: Any,
        orig_output: Any,
        grad: Any,
        ksize: Any,
        strides: Any,
        padding: str | bytes,
        data_format: str | None = None,
        name: str | None = None,
    ) -> Tensor:
        windows, padding = _Windows.of(ksize, strides, padding), tf.compat.as_str(padding)
        options = {} if data_format is None else {"data_format": data_format}

        def function(x: Tensor, y: Tensor, dx: Tensor) -> tuple[Tensor, Any]:
            def backward(dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                # As in the gradients that TensorFlow registers: only that of ``dx`` is not 0.
                back = adjoint(x, y, dy, ksize, strides, padding=padding, **options)
                return tf.zeros_like(x), tf.zeros_like(y), back

            result = windows.at_largest(x, dx)
            result.set_shape(y.shape)
            return result, backward

        with tf.name_scope(name or "max_pool_grad_grad"):
            result: Tensor = tf.custom_gradient(function)(*map(tf.convert_to_tensor, (orig_input, orig_output, grad)))
            return result

    return mended


class _Windows(NamedTuple):
    """The windows of max pooling: their size and step in each axis, and whether they go beyond the ends."""

    sizes: Sequence[int]
    steps: Sequence[int]
    is_padded: bool

    @classmethod
    def of(cls, ksize: Any, strides: Any, padding: str | bytes) -> "_Windows":
        """Return the windows that the arguments of a kernel state; raise ``ValueError`` for those it does not have."""
        given = tf.get_static_value(tf.convert_to_tensor(ksize)), tf.get_static_value(tf.convert_to_tensor(strides))
        if given[0] is None or given[1] is None:
            raise ValueError("the second order of max pooling: expected windows that are known while TensorFlow traces")
        if (padding := tf.compat.as_str(padding)) not in {"SAME", "VALID"}:
            raise ValueError(f'the second order of max pooling: expected padding "SAME" or "VALID", got {padding!r}')
        return cls([*map(int, given[0])], [*map(int, given[1])], padding == "SAME")

    def at_largest(self, x: Tensor, dx: Tensor) -> Tensor:
        """Return the number of ``dx`` at the largest number of ``x`` in each window, the first of equal ones.

        Axes are taken one by one from the last, so the first of a window is that in the order of memory.
        """
        for axis, size, step in [*zip(range(len(self.sizes)), self.sizes, self.steps, strict=True)][::-1]:
            if (size, step) == (1, 1):
                continue
            count = tf.shape(x)[axis]
            last = (count - (1 if self.is_padded else size)) // step * step
            if self.is_padded:
                missing = tf.maximum(last + size - count, 0)
                widths = tf.scatter_nd([[axis]], [[missing // 2, missing - missing // 2]], (len(self.sizes), 2))
                # NaN is never the largest of others.
                x, dx = tf.pad(x, widths, constant_values=float("nan")), tf.pad(dx, widths)
            places = [(slice(None),) * axis + (slice(first, first + last + 1, step),) for first in range(size)]
            largest, chosen = x[places[0]], dx[places[0]]
            for place in places[1:]:
                is_larger = (x[place] > largest) | tf.math.is_nan(largest)
                largest, chosen = tf.where(is_larger, x[place], largest), tf.where(is_larger, dx[place], chosen)
            x, dx = largest, chosen
        return dx
