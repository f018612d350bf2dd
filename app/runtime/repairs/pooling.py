"""Corrections of the gradients of max pooling, where kernels of TensorFlow 2.21 take the numbers of other places.

The first order of a volume, on the CPU, gives the cotangent of a window to every number that is less than 1e-5 below
the largest, which may be all. Here it is made of the kernels of planes, which compare all bits: first of rows and
columns.

The second order is 0 in a graph where the result has the size of the cotangent, as at stride 1: the kernels write it
into the memory of a cotangent that nothing else needs any more, and clear this memory before they read it. XLA's
compare numbers as bfloat16, so the second order is not that of the first; it has none for float64, and no mode has them
for half precision. So the second order is arithmetic here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

# Private, because TensorFlow's gradients call these functions by their private names.
from tensorflow.python.ops import gen_nn_ops

from app.runtime.repairs.replacing import replace
from ops import Tensor

KERNELS: Any = gen_nn_ops
SECOND_ORDERS = {
    "MaxPoolGradGrad": ("max_pool_grad_grad", "max_pool_grad"),
    "MaxPoolGradGradV2": ("max_pool_grad_grad_v2", "max_pool_grad_v2"),
    "MaxPool3DGradGrad": ("max_pool3d_grad_grad", "max_pool3d_grad"),
}
"""The kernels of the second order: the names of the functions that call them, and of those that call their adjoints."""


def install() -> None:
    """Correct both orders; call this before any program is built."""
    if not hasattr(KERNELS.max_pool3d_grad, "__wrapped__"):
        replace(KERNELS.max_pool3d_grad, _volume_grad, "MaxPool3DGrad")
        for kernel, (name, adjoint) in SECOND_ORDERS.items():
            replace(getattr(KERNELS, name), _second_order(getattr(KERNELS, adjoint)), kernel)


def _volume_grad(  # noqa: PLR0917 - these are TensorFlow's
    orig_input: Any,
    orig_output: Any,
    grad: Any,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str | bytes,
    data_format: str = "NDHWC",
    name: str | None = None,
) -> Tensor:
    """Return the gradient of max pooling of a volume; where numbers are equal, at the first in the order of memory."""
    del orig_output
    has_channels_last = data_format == "NDHWC"
    first = 1 if has_channels_last else 2
    (depth, *sizes), (step, *steps) = ([*map(int, each[first : first + 3])] for each in (ksize, strides))
    with tf.name_scope(name or "max_pool3d_grad"):
        x, dy = tf.convert_to_tensor(orig_input), tf.convert_to_tensor(grad)
        (n, d, h, w, c), y_shape = _planes(x, has_channels_last), _planes(dy, has_channels_last)
        planes = tf.reshape(x, [n * d, h, w, c])
        inner = {"ksize": [1, *sizes, 1], "strides": [1, *steps, 1], "padding": padding}
        outer = {"ksize": [1, depth, 1, 1], "strides": [1, step, 1, 1], "padding": padding}
        largest = tf.stop_gradient(KERNELS.max_pool(planes, **inner))
        rows = tf.reshape(largest, [n, d, y_shape[2] * y_shape[3], c])
        y = tf.stop_gradient(KERNELS.max_pool(rows, **outer))
        back = KERNELS.max_pool_grad(rows, y, tf.reshape(dy, tf.shape(y)), **outer)
        back = KERNELS.max_pool_grad(planes, largest, tf.reshape(back, tf.shape(largest)), **inner)
        result: Tensor = tf.reshape(back, tf.shape(x))
        result.set_shape(x.shape)
        return result


def _planes(x: Tensor, has_channels_last: bool) -> tuple[Any, ...]:
    """Return the sizes of a volume: of examples, planes, rows, columns, and channels, which may count as examples."""
    n, *sizes = tf.unstack(tf.shape(x))
    return (n, *sizes) if has_channels_last else (n * sizes[0], *sizes[1:], 1)


def _second_order(adjoint: Any) -> Any:
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
        windows = _Windows.of(ksize, strides, padding)
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
        text = padding.decode() if isinstance(padding, bytes) else padding
        if text not in {"SAME", "VALID"}:
            raise ValueError(f'the second order of max pooling: expected padding "SAME" or "VALID", got {text!r}')
        return cls([*map(int, given[0])], [*map(int, given[1])], text == "SAME")

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
