"""Gradients of kernels for which TensorFlow 2.21 has none, or says that it is 0.

Most compute a gradient themselves. Such a kernel is linear in its cotangent, and its gradient in that is the derivative
of the first kernel, for its tangent: without it, a function has no jvp and no second order. TensorFlow has none for
softsign, most ways to resize, embeddings of sparse ids and others. It declares that of linear resizing, and that of
quantization for training, to be 0, and says no word of it.

Other kernels are declared to have a gradient of 0 that is not 0, such as that of ``tf.image.hsv_to_rgb``, or have an
approximate one. Here they have none: whoever asks for it learns the name of the kernel.
"""

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import tensorflow as tf

# Private, because the public API cannot replace a gradient, nor remove one.
from tensorflow.python.framework.ops import gradient_registry

# Private, because TensorFlow's gradients call these functions by their private names.
from tensorflow.python.ops import gen_array_ops, gen_image_ops

from app.runtime.repairs.replacing import replace

RAW: Any = tf.raw_ops
KERNELS: Any = gen_array_ops
IMAGE_KERNELS: Any = gen_image_ops
RESIZING, _ENTRY = "ResizeBilinearGrad", "type"
Gradient: TypeAlias = Callable[..., list[Any]]

WITHOUT = (
    *("CTCBeamSearchDecoder", "CTCGreedyDecoder", "DrawBoundingBoxes", "ExtractGlimpse", "HSVToRGB", "LinSpace"),
    *("OneHot", "ParameterizedTruncatedNormal", "RaggedRange", "RandomCrop", "RandomShuffle", "Range"),
    *("ReduceDataset", "SparseAddGrad", "SparseConcat", "XlaVariadicReduce"),
    *("ImageProjectiveTransformV2", "ImageProjectiveTransformV3", "SparseSparseMaximum", "SparseSparseMinimum"),
)
"""Kernels that TensorFlow declares to have no gradient, though their floats depend smoothly on floats, those whose
gradient is that of an inverse transform in place of the adjoint one, and those whose gradient only fails.
"""


def install() -> None:
    """Register the gradients, and remove those that are not 0; call this before any program is built."""
    entries: dict[str, dict[str, Any]] = gradient_registry._registry
    for kernel in WITHOUT:
        entries.pop(kernel, None)
    for kernel, gradient in GRADIENTS.items():
        if kernel not in entries:
            gradient_registry.register(gradient, kernel)
        elif entries[kernel][_ENTRY] is not gradient:
            entries[kernel][_ENTRY] = gradient
            if kernel in FUNCTIONS:
                function = FUNCTIONS[kernel]
                mended = _in_single(function) if kernel == RESIZING else function
                replace(function, _recorded(mended, gradient), kernel)


def _in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the adjoint of linear resizing in float32: XLA's takes its float32 numbers for those of another dtype."""

    @wraps(function)
    def single(grads: Any, original_image: Any, **options: Any) -> Any:
        dx = function(grads, tf.cast(original_image, tf.float32), **options)
        return tf.cast(dx, original_image.dtype)

    return single


def _recorded(function: Callable[..., Any], gradient: Gradient) -> Callable[..., Any]:
    """Return a function that calls a kernel; tapes keep only the inputs that TensorFlow's own gradient needs."""
    parameters = signature(function)
    names = [name for name, each in parameters.parameters.items() if each.default is each.empty]

    @wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)

        def call(*inputs: Any) -> tuple[Any, Any]:
            node = SimpleNamespace(inputs=inputs, get_attr=given.__getitem__)
            return function(**given | dict(zip(names, inputs, strict=True))), partial(gradient, node)

        return tf.custom_gradient(call)(*(tf.convert_to_tensor(given[name]) for name in names))

    return recorded


def _attributes(node: Any, names: str) -> dict[str, Any]:
    return {name: node.get_attr(name) for name in names.split()}


def _resized(kernel: Any, attributes: str) -> Gradient:
    """Return the gradient of the adjoint of a kernel that resizes images (n, height, width, channels)."""

    def gradient(node: Any, ddx: Any) -> list[Any]:
        dy, *others = node.inputs
        more = dict(zip(("scale", "translation"), others[1:], strict=False))
        ddy = kernel(images=ddx, size=tf.shape(dy)[1:3], **more, **_attributes(node, attributes))
        return [tf.cast(ddy, dy.dtype), *(None for _ in others)]

    return gradient


def _cropped(node: Any, ddx: Any) -> list[Any]:
    """Return the gradients in the cotangent of the crops (n, height, width, channels), and in the boxes."""
    dy, boxes, box_ind, _ = node.inputs
    where = {"boxes": boxes, "box_ind": box_ind}
    ddy = RAW.CropAndResize(image=ddx, crop_size=tf.shape(dy)[1:3], **where, **_attributes(node, "method"))
    return [ddy, RAW.CropAndResizeGradBoxes(grads=dy, image=ddx, **where), None, None]


def _softsign(node: Any, ddx: Any) -> list[Any]:
    """Return the gradients of dx = dy r², with r = 1/(1 + |x|), which moves by -sign(x) r²."""
    dy, x = node.inputs
    r = 1 / (1 + tf.abs(x))
    return [ddx * r * r, -2 * tf.sign(x) * r * r * r * dy * ddx]


def _normalized(node: Any, ddx: Any) -> list[Any]:
    """Return the gradients of dx = dy s⁻ᵝ - 2αβ x W(dy x s⁻ᵝ⁻¹), with s = bias + α W(x²).

    W sums the ``depth_radius`` channels on both sides (Krizhevsky et al., "ImageNet classification with deep
    convolutional neural networks", 2012, section 3.3).
    """
    dy, x, _ = node.inputs
    radius, bias, alpha, beta = (node.get_attr(name) for name in ("depth_radius", "bias", "alpha", "beta"))
    wide = [tf.cast(each, tf.float32) for each in (dy, x, ddx)]

    def windows(z: Any) -> Any:
        padded, count = tf.pad(z, [[0, 0]] * 3 + [[radius, radius]]), tf.shape(z)[3]
        return tf.reduce_sum([padded[..., i : i + count] for i in range(2 * radius + 1)], 0)

    with tf.GradientTape() as tape:
        tape.watch(wide[:2])
        c, z, v = wide
        s = bias + alpha * windows(z * z)
        dx = c * s**-beta - 2 * alpha * beta * z * windows(c * z * s ** (-beta - 1))
    ddy, dz = cast("list[Any]", tape.gradient(dx, wide[:2], v))
    return [tf.cast(ddy, dy.dtype), tf.cast(dz, x.dtype), None]


def _segments(kernel: Any) -> Gradient:
    """Return the gradient of the adjoint of a kernel that reduces chosen rows by segment."""

    def gradient(node: Any, ddx: Any, *rest: Any) -> list[Any]:
        dy, indices, segment_ids, _ = node.inputs
        if rest:  # version 2 returns only the rows that are chosen, in their order
            chosen, _ = RAW.Unique(x=tf.sort(indices))
            indices = RAW.LowerBound(sorted_inputs=chosen[None], values=indices[None])[0]
        ddy = kernel(data=ddx, indices=indices, segment_ids=segment_ids, num_segments=tf.shape(dy)[0])
        return [ddy, None, None, None]

    return gradient


def _filled_rows(node: Any, ddx: Any, ddefault: Any) -> list[Any]:
    """Return the gradient in the cotangent of values of which some are a default: in those, that of the default."""
    places, dy = node.inputs
    at = tf.cast(places, tf.int32)[:, None]  # vectorization needs int32
    return [None, tf.tensor_scatter_nd_update(tf.fill(tf.shape(dy), ddefault), at, ddx)]


def _at_argmax(node: Any, ddx: Any) -> list[Any]:
    """Return the numbers of ddx at the largest of each window, whose places are known."""
    _, dy, argmax = node.inputs
    if node.get_attr("include_batch_in_index"):
        ddy = tf.gather(tf.reshape(ddx, [-1]), argmax)
    else:
        ddy = tf.gather(tf.reshape(ddx, [tf.shape(ddx)[0], -1]), argmax, batch_dims=1)
    return [None, tf.reshape(ddy, tf.shape(dy)), None]


def _quantized(node: Any, ddx: Any) -> list[Any]:
    attributes = _attributes(node, "min max num_bits narrow_range")
    return [RAW.FakeQuantWithMinMaxArgsGradient(gradients=ddx, inputs=node.inputs[1], **attributes), None]


def _quantized_within(kernel: Any) -> Gradient:
    """Return the gradient of the adjoint of a quantization whose limits are inputs: numbers beyond move with one."""

    def gradient(node: Any, ddx: Any, dmin: Any, dmax: Any) -> list[Any]:
        dy, x, least, most = node.inputs
        attributes = _attributes(node, "num_bits narrow_range")
        inside = kernel(gradients=tf.ones_like(dy), inputs=x, min=least, max=most, **attributes)[0]
        ends = tf.where(x < (least + most) / 2, dmin, dmax)
        return [ddx * inside + ends * (1 - inside), None, None, None]

    return gradient


def _rounded(node: Any, ddx: Any, *_: Any) -> list[Any]:
    dy, *others = node.inputs
    inside: Any = RAW.QuantizeAndDequantizeV4Grad.__wrapped__(tf.ones_like(dy), *others, **_attributes(node, "axis"))[0]
    return [ddx * inside, None, None, None]


GRADIENTS: dict[str, Gradient] = {
    "CropAndResizeGradImage": _cropped,
    "FakeQuantWithMinMaxArgsGradient": _quantized,
    "FakeQuantWithMinMaxVarsGradient": _quantized_within(RAW.FakeQuantWithMinMaxVarsGradient),
    "FakeQuantWithMinMaxVarsPerChannelGradient": _quantized_within(RAW.FakeQuantWithMinMaxVarsPerChannelGradient),
    "LRNGrad": _normalized,
    "MaxPoolGradWithArgmax": _at_argmax,
    "QuantizeAndDequantizeV4Grad": _rounded,
    "RaggedFillEmptyRowsGrad": _filled_rows,
    "ResizeBicubicGrad": _resized(RAW.ResizeBicubic, "align_corners half_pixel_centers"),
    RESIZING: _resized(RAW.ResizeBilinear, "align_corners half_pixel_centers"),
    "ResizeNearestNeighborGrad": _resized(RAW.ResizeNearestNeighbor, "align_corners half_pixel_centers"),
    "ScaleAndTranslateGrad": _resized(RAW.ScaleAndTranslate, "kernel_type antialias"),
    "SoftsignGrad": _softsign,
    "SparseFillEmptyRowsGrad": _filled_rows,
    **{f"SparseSegmentMeanGrad{version}": _segments(RAW.SparseSegmentMeanWithNumSegments) for version in ("", "V2")},
    **{f"SparseSegmentSqrtNGrad{version}": _segments(RAW.SparseSegmentSqrtNWithNumSegments) for version in ("", "V2")},
    **{f"SparseSegmentSumGrad{version}": _segments(RAW.SparseSegmentSumWithNumSegments) for version in ("", "V2")},
}
"""By kernel; the gradients of those that compute one take the cotangent of dx."""

FUNCTIONS: dict[str, Any] = {
    "FakeQuantWithMinMaxArgsGradient": KERNELS.fake_quant_with_min_max_args_gradient,
    "FakeQuantWithMinMaxVarsGradient": KERNELS.fake_quant_with_min_max_vars_gradient,
    "FakeQuantWithMinMaxVarsPerChannelGradient": KERNELS.fake_quant_with_min_max_vars_per_channel_gradient,
    "QuantizeAndDequantizeV4Grad": KERNELS.quantize_and_dequantize_v4_grad,
    RESIZING: IMAGE_KERNELS.resize_bilinear_grad,
}
"""The functions that call those of them that TensorFlow has a gradient for, of 0 or one that fails."""
