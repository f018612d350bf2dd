"""Gradients of kernels for which TensorFlow 2.21 has none, or says that it is 0.

Most compute a gradient themselves. Such a kernel is linear in its cotangent, and its gradient in that is the derivative
of the first kernel, for its tangent: without it, a function has no jvp and no second order. TensorFlow has none for
softsign, most ways to resize, embeddings of sparse ids and others. It declares that of linear resizing, and that of
quantization for training, to be 0, and serves no word of it.

Other kernels are declared to have a gradient of 0 that is not 0, such as that of ``tf.image.hsv_to_rgb``. Here they
have none: whoever asks for it learns the name of the kernel.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from types import SimpleNamespace
from typing import Any, TypeAlias

import tensorflow as tf

# Private, because the public API cannot replace a gradient, nor remove one.
from tensorflow.python.framework.ops import gradient_registry

# Private, because TensorFlow's gradients call these functions by their private names.
from tensorflow.python.ops import gen_array_ops, gen_image_ops

from app.runtime.repairs.replacing import replace
from ops import Tensor

RAW: Any = tf.raw_ops
_ENTRY = "type"
Gradient: TypeAlias = Callable[..., Sequence[Tensor | None]]

NOT_ZERO = (
    *("CTCBeamSearchDecoder", "CTCGreedyDecoder", "DrawBoundingBoxes", "ExtractGlimpse", "HSVToRGB", "LinSpace"),
    *("OneHot", "ParameterizedTruncatedNormal", "RaggedRange", "RandomCrop", "RandomShuffle", "Range"),
    *("ReduceDataset", "SparseAddGrad", "SparseConcat", "XlaVariadicReduce"),
)
"""Kernels whose floats depend smoothly on floats, and that TensorFlow declares to have no gradient."""


def install() -> None:
    """Register the gradients, and remove those that are not 0; call this before any program is built."""
    entries: dict[str, dict[str, Any]] = gradient_registry._registry
    for kernel in NOT_ZERO:
        entries.pop(kernel, None)
    for kernel, gradient in GRADIENTS.items():
        if kernel not in entries:
            gradient_registry.register(gradient, kernel)
        elif entries[kernel][_ENTRY] is None:
            entries[kernel][_ENTRY] = gradient
            replace(ZERO[kernel], _recorded(ZERO[kernel], gradient), kernel)


def _recorded(function: Callable[..., Any], gradient: Gradient) -> Callable[..., Any]:
    """Return a function that calls a kernel; tapes do not keep its inputs, since its gradient was declared to be 0."""
    parameters = signature(function)
    names = [name for name, each in parameters.parameters.items() if each.default is each.empty]

    @wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)

        def call(*inputs: Tensor) -> tuple[Any, Any]:
            node = SimpleNamespace(inputs=inputs, get_attr=given.__getitem__)
            return function(**given | dict(zip(names, inputs, strict=True))), lambda *ddxs: gradient(node, *ddxs)

        return tf.custom_gradient(call)(*(tf.convert_to_tensor(given[name]) for name in names))

    return recorded


def _attributes(node: Any, names: str) -> dict[str, Any]:
    return {name: node.get_attr(name) for name in names.split()}


def _resized(kernel: Any, attributes: str) -> Gradient:
    """Return the gradient of the adjoint of a kernel that resizes images (n, height, width, channels)."""

    def gradient(node: Any, ddx: Tensor) -> list[Tensor | None]:
        dy, *others = node.inputs
        more = dict(zip(("scale", "translation"), others[1:], strict=False))
        ddy = kernel(images=ddx, size=tf.shape(dy)[1:3], **more, **_attributes(node, attributes))
        return [tf.cast(ddy, dy.dtype), *(None for _ in others)]

    return gradient


def _cropped(node: Any, ddx: Tensor) -> list[Tensor | None]:
    """Return the gradients in the cotangent of the crops (n, height, width, channels), and in the boxes."""
    dy, boxes, box_ind, _ = node.inputs
    where = {"boxes": boxes, "box_ind": box_ind}
    ddy = RAW.CropAndResize(image=ddx, crop_size=tf.shape(dy)[1:3], **where, **_attributes(node, "method"))
    return [ddy, RAW.CropAndResizeGradBoxes(grads=dy, image=ddx, **where), None, None]


def _softsign(node: Any, ddx: Tensor) -> list[Tensor | None]:
    """Return the gradients of dx = dy r², with r = 1/(1 + |x|), which moves by -sign(x) r²."""
    dy, x = node.inputs
    r = 1 / (1 + tf.abs(x))
    return [ddx * r * r, -2 * tf.sign(x) * r * r * r * dy * ddx]


def _normalized(node: Any, ddx: Tensor) -> list[Tensor | None]:
    """Return the gradients of dx = dy s⁻ᵝ - 2αβ x W(dy x s⁻ᵝ⁻¹), with s = bias + α W(x²).

    W sums the ``depth_radius`` channels on both sides (Krizhevsky et al., "ImageNet classification with deep
    convolutional neural networks", 2012, section 3.3).
    """
    dy, x, _ = node.inputs
    radius, bias, alpha, beta = (node.get_attr(name) for name in ("depth_radius", "bias", "alpha", "beta"))
    wide = [tf.cast(each, tf.float32) for each in (dy, x, ddx)]

    def windows(z: Tensor) -> Tensor:
        padded, count = tf.pad(z, [[0, 0]] * 3 + [[radius, radius]]), tf.shape(z)[3]
        return tf.add_n([padded[..., i : i + count] for i in range(2 * radius + 1)])

    with tf.GradientTape() as tape:
        tape.watch(wide[:2])
        c, z, v = wide
        s = bias + alpha * windows(z * z)
        dx = c * s**-beta - 2 * alpha * beta * z * windows(c * z * s ** (-beta - 1))
    ddy, dz = tape.gradient(dx, wide[:2], v)
    return [tf.cast(ddy, dy.dtype), tf.cast(dz, x.dtype), None]


def _segments(kernel: Any) -> Gradient:
    """Return the gradient of the adjoint of a kernel that reduces chosen rows by segment."""

    def gradient(node: Any, ddx: Tensor, *rest: Any) -> list[Tensor | None]:
        dy, indices, segment_ids, _ = node.inputs
        if rest:  # version 2 returns only the rows that are chosen, in their order
            chosen, _ = tf.unique(tf.sort(indices))
            indices = tf.searchsorted(chosen, indices)
        ddy = kernel(data=ddx, indices=indices, segment_ids=segment_ids, num_segments=tf.shape(dy)[0])
        return [ddy, None, None, None]

    return gradient


def _filled_rows(node: Any, ddx: Tensor, ddefault: Tensor) -> list[Tensor | None]:
    """Return the gradient in the cotangent of values of which some are a default: in those, that of the default."""
    places, dy = node.inputs
    return [None, tf.tensor_scatter_nd_update(tf.fill(tf.shape(dy), ddefault), places[:, None], ddx)]


def _at_argmax(node: Any, ddx: Tensor) -> list[Tensor | None]:
    """Return the numbers of ddx at the largest of each window, whose places are known."""
    _, dy, argmax = node.inputs
    if node.get_attr("include_batch_in_index"):
        ddy = tf.gather(tf.reshape(ddx, [-1]), argmax)
    else:
        ddy = tf.gather(tf.reshape(ddx, [tf.shape(ddx)[0], -1]), argmax, batch_dims=1)
    return [None, tf.reshape(ddy, tf.shape(dy)), None]


def _quantized(node: Any, ddx: Tensor) -> list[Tensor | None]:
    attributes = _attributes(node, "min max num_bits narrow_range")
    return [RAW.FakeQuantWithMinMaxArgsGradient(gradients=ddx, inputs=node.inputs[1], **attributes), None]


def _quantized_within(kernel: Any) -> Gradient:
    """Return the gradient of the adjoint of a quantization whose limits are inputs: numbers beyond move with one."""

    def gradient(node: Any, ddx: Tensor, dmin: Tensor, dmax: Tensor) -> list[Tensor | None]:
        dy, x, least, most = node.inputs
        attributes = _attributes(node, "num_bits narrow_range")
        inside = kernel(gradients=tf.ones_like(dy), inputs=x, min=least, max=most, **attributes)[0]
        ends = tf.where(x < (least + most) / 2, dmin, dmax)
        return [ddx * inside + ends * (1 - inside), None, None, None]

    return gradient


GRADIENTS: dict[str, Gradient] = {
    "CropAndResizeGradImage": _cropped,
    "FakeQuantWithMinMaxArgsGradient": _quantized,
    "FakeQuantWithMinMaxVarsGradient": _quantized_within(RAW.FakeQuantWithMinMaxVarsGradient),
    "FakeQuantWithMinMaxVarsPerChannelGradient": _quantized_within(RAW.FakeQuantWithMinMaxVarsPerChannelGradient),
    "LRNGrad": _normalized,
    "MaxPoolGradWithArgmax": _at_argmax,
    "RaggedFillEmptyRowsGrad": _filled_rows,
    "ResizeBicubicGrad": _resized(RAW.ResizeBicubic, "align_corners half_pixel_centers"),
    "ResizeBilinearGrad": _resized(RAW.ResizeBilinear, "align_corners half_pixel_centers"),
    "ResizeNearestNeighborGrad": _resized(RAW.ResizeNearestNeighbor, "align_corners half_pixel_centers"),
    "ScaleAndTranslateGrad": _resized(RAW.ScaleAndTranslate, "kernel_type antialias"),
    "SoftsignGrad": _softsign,
    "SparseFillEmptyRowsGrad": _filled_rows,
    **{f"SparseSegmentMeanGrad{version}": _segments(RAW.SparseSegmentMeanWithNumSegments) for version in ("", "V2")},
    **{f"SparseSegmentSqrtNGrad{version}": _segments(RAW.SparseSegmentSqrtNWithNumSegments) for version in ("", "V2")},
    **{f"SparseSegmentSumGrad{version}": _segments(RAW.SparseSegmentSumWithNumSegments) for version in ("", "V2")},
}
"""By kernel; the gradients of those that compute one take the cotangent of dx."""

_ARRAY: Any = gen_array_ops
ZERO = {
    "FakeQuantWithMinMaxArgsGradient": _ARRAY.fake_quant_with_min_max_args_gradient,
    "FakeQuantWithMinMaxVarsGradient": _ARRAY.fake_quant_with_min_max_vars_gradient,
    "FakeQuantWithMinMaxVarsPerChannelGradient": _ARRAY.fake_quant_with_min_max_vars_per_channel_gradient,
    "ResizeBilinearGrad": gen_image_ops.resize_bilinear_grad,
}
"""The functions that call those of them that TensorFlow declares to have a gradient of 0."""
