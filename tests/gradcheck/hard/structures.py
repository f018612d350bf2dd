"""Layers and reductions: axes, broadcasting, several outputs, and second orders by hand."""

from typing import Any, Literal

import numpy as np
import tensorflow as tf
from mpmath import mp
from pydantic import Field

from ops import Attrs, Example, Input, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, WIDE, structured, within
from tests.gradcheck.wrong.variants import in_kernel, rectified, rectified_vjp

ROWS = [[0.5, -1.25, 2.0, 1.0], [-3.0, 0.25, 1.0, 0.75]]
SIGNAL = [[[1.0], [2.0], [-1.0], [0.5], [3.0]]]
KERNEL = [[[1.0]], [[-0.5]], [[0.25]]]


class PadAttrs(Attrs):
    """How a convolution treats the ends."""

    padding: Literal["SAME", "VALID"] = "SAME"


class NormAttrs(Attrs):
    """The number under the root, and whether to subtract the mean."""

    epsilon: float = Field(default=1e-3, gt=0)
    centred: bool = True


def of_rows(name, function, reference, y=("N", "M"), **changes):
    slots: dict[str, Any] = {
        "inputs": (Input("x", BOTH, ("N", "M")),),
        "outputs": (Output("y", BOTH, y),),
        "batching": "leading_axis",
    }
    return structured(name, function, reference, {"x": ROWS}, **(slots | changes))


def layer_norm(x, *, epsilon, centred):
    rest = x - tf.reduce_mean(x, axis=-1, keepdims=True) if centred else x
    return rest / tf.sqrt(tf.reduce_mean(rest * rest, axis=-1, keepdims=True) + epsilon)


def layer_norm_vjp(x, dy, *, epsilon, centred):
    rest = x - tf.reduce_mean(x, axis=-1, keepdims=True) if centred else x
    r = tf.sqrt(tf.reduce_mean(rest * rest, axis=-1, keepdims=True) + epsilon)
    y = rest / r
    inner = dy - y * tf.reduce_mean(dy * y, axis=-1, keepdims=True)
    return (inner - tf.reduce_mean(dy, axis=-1, keepdims=True) if centred else inner) / r


def layer_norm_reference(x, *, epsilon, centred):
    rest = x - x.mean(axis=-1, keepdims=True) if centred else x
    return rest / np.sqrt((rest * rest).mean(axis=-1, keepdims=True) + epsilon)


def exact_layer_norm(x, *, epsilon, centred):
    def of_row(row):
        mean = mp.fsum(row) / len(row) if centred else mp.mpf(0)
        r = mp.sqrt(mp.fsum((v - mean) ** 2 for v in row) / len(row) + mp.mpf(epsilon))
        return [(v - mean) / r for v in row]

    return [of_row(row) for row in x]


def softmax_vjp(x, dy):
    y = tf.nn.softmax(x)
    return y * (dy - tf.reduce_sum(y * dy, axis=-1, keepdims=True))


def softmax_vjp_vjp(x, dy, ddx):
    y = tf.nn.softmax(x)
    mean_dy = tf.reduce_sum(y * dy, axis=-1, keepdims=True)
    mean_ddx = tf.reduce_sum(y * ddx, axis=-1, keepdims=True)
    both = (dy - mean_dy) * (ddx - mean_ddx)
    return y * (both - tf.reduce_sum(y * both, axis=-1, keepdims=True)), y * (ddx - mean_ddx)


def softmax_reference(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def squared_distances(x, z):
    """|x|² - 2 x·z + |z|²."""
    return tf.reduce_sum(x * x, -1)[:, None] - 2 * tf.matmul(x, z, transpose_b=True) + tf.reduce_sum(z * z, -1)


def convolve_reference(x, w, *, padding):
    width = w.shape[0]
    pad = (width - 1) // 2 if padding == "SAME" else 0
    wide = np.pad(x, ((0, 0), (pad, width - 1 - pad if padding == "SAME" else 0), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, width, axis=1)
    return np.einsum("nick,kco->nio", windows, w)


def exact_attention(q, k, v):
    def of_query(row):
        e = [mp.exp(mp.fsum(a * b for a, b in zip(row, key, strict=True))) for key in k]
        return [mp.fsum(w * value[j] for w, value in zip(e, v, strict=True)) / mp.fsum(e) for j in range(len(v[0]))]

    return [of_query(row) for row in q]


def moments(x):
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    return mean[:, 0], tf.reduce_mean(tf.square(x - mean), axis=-1)


def nested_cube(x):
    """Σ x³, whose gradient is a ``tf.custom_gradient`` of x and dy with a gradient of its own."""

    @tf.custom_gradient
    def primal(x):
        @tf.custom_gradient
        def pull(x, dy):
            def pull_again(ddx):
                return 6 * x * dy[:, None] * ddx, tf.reduce_sum(3 * x * x * ddx, axis=-1)

            return 3 * x * x * dy[:, None], pull_again

        def pull_back(dy):
            return pull(x, dy)

        return tf.reduce_sum(x * x * x, axis=-1), pull_back

    return primal(x)


def running_logsumexp_reference(x):
    return np.logaddexp.accumulate(x, axis=-1)


NORMS = (Example("centred", {"x": ROWS}), Example("as is", {"x": ROWS}, {"epsilon": 1.0, "centred": False}))
PADS = (Example("same", {"x": SIGNAL, "w": KERNEL}), Example("valid", {"x": SIGNAL, "w": KERNEL}, {"padding": "VALID"}))
Q, K, V = [[0.5, -1.0], [2.0, 1.0], [0.0, 0.25]], [[1.0, 0.5], [-0.5, 2.0]], [[1.0, -1.0], [0.5, 3.0]]

OPS = collected(
    Hard(in_kernel(custom_gradient(rectified, rectified_vjp), "kernel_with_bias")),
    Hard(
        of_rows(
            "layer_norm",
            custom_gradient(layer_norm, layer_norm_vjp),
            layer_norm_reference,
            attrs=NormAttrs,
            examples=NORMS,
        ),
        exact_layer_norm,
    ),
    Hard(of_rows("softmax_by_hand", custom_gradient(tf.nn.softmax, softmax_vjp, softmax_vjp_vjp), softmax_reference)),
    Hard(of_rows("log_softmax", tf.nn.log_softmax, lambda x: np.log(softmax_reference(x)))),
    Hard(
        of_rows(
            "running_product",
            lambda x: tf.math.cumprod(x, axis=-1),
            lambda x: np.cumprod(x, axis=-1),
            inputs=(Input("x", BOTH, ("N", "M"), domain=(0.25, 3.0)),),
            # TensorFlow's gradient divides by x.
            validate=within(x=(0.1, 10.0)),
            examples=(Example("positive", {"x": [[0.5, 2.0, 1.0], [3.0, 0.25, 2.0]]}),),
        ),
        lambda x: [[mp.fprod(row[: i + 1]) for i in range(len(row))] for row in x],
    ),
    # Where a row has two zeros, TensorFlow's own second order is wrong.
    Hard(
        of_rows(
            "row_product",
            lambda x: tf.reduce_prod(x, axis=-1),
            lambda x: x.prod(axis=-1),
            ("N",),
            inputs=(Input("x", BOTH, ("N", "M"), domain=(0.25, 3.0)),),
        )
    ),
    Hard(
        of_rows("running_logsumexp", lambda x: tf.math.cumulative_logsumexp(x, axis=-1), running_logsumexp_reference),
        lambda x: [[mp.log(mp.fsum(map(mp.exp, row[: i + 1]))) for i in range(len(row))] for row in x],
    ),
    Hard(
        of_rows(
            "moments",
            moments,
            lambda x: (x.mean(axis=-1), x.var(axis=-1)),
            outputs=(Output("mean", BOTH, ("N",)), Output("variance", BOTH, ("N",))),
        )
    ),
    Hard(
        of_rows("nested_cube", nested_cube, lambda x: (x**3).sum(axis=-1), ("N",)),
        lambda x: [mp.fsum(v**3 for v in row) for row in x],
    ),
    Hard(
        structured(
            "squared_distances",
            squared_distances,
            lambda x, z: ((x[:, None] - z) ** 2).sum(axis=-1),
            {"x": Q, "z": K},
            inputs=(Input("x", WIDE, ("N", "M")), Input("z", WIDE, ("K", "M"))),
            outputs=(Output("y", WIDE, ("N", "K")),),
        ),
        lambda x, z: [[mp.fsum((a - b) ** 2 for a, b in zip(p, q, strict=True)) for q in z] for p in x],
    ),
    Hard(
        structured(
            "convolve",
            lambda x, w, *, padding: tf.nn.conv1d(x, w, stride=1, padding=padding),
            convolve_reference,
            {"x": SIGNAL, "w": KERNEL},
            inputs=(Input("x", BOTH, ("N", "L", "C")), Input("w", BOTH, (3, "C", "D"))),
            outputs=(Output("y", BOTH, ("N", "P", "D")),),
            attrs=PadAttrs,
            examples=PADS,
        )
    ),
    Hard(
        structured(
            "optional_bias",
            custom_gradient(
                lambda x, w, b: tf.sin(x) * w if b is None else tf.sin(x) * w + b,
                lambda x, w, b, dy: (tf.cos(x) * w * dy, tf.sin(x) * dy, dy),
            ),
            lambda x, w, b: np.sin(x) * w + (0 if b is None else b),
            {"x": [0.5, -1.0], "w": [2.0, 0.25], "b": [1.0, -0.5]},
            inputs=(Input("x", BOTH), Input("w", BOTH), Input("b", BOTH, optional=True)),
            outputs=(Output("y", BOTH),),
            batching="elementwise",
        )
    ),
    Hard(
        structured(
            "gathered",
            lambda x, i: tf.gather(x, i % tf.size(x, out_type=i.dtype)),
            lambda x, i: x[i % len(x)],
            {"x": [0.5, -1.0, 2.0], "i": [2, 0, 2]},
            inputs=(
                Input("x", BOTH, ("N",)),
                Input("i", ("int32", "int64"), ("M",), differentiable=False, domain=(0.0, 3.0)),
            ),
            outputs=(Output("y", BOTH, ("M",)),),
        )
    ),
    Hard(
        structured(
            "attention",
            lambda q, k, v: tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True)), v),
            lambda q, k, v: softmax_reference(q @ k.T) @ v,
            {"q": Q, "k": K, "v": V},
            inputs=(Input("q", BOTH, ("N", "M")), Input("k", BOTH, ("K", "M")), Input("v", BOTH, ("K", "D"))),
            outputs=(Output("y", BOTH, ("N", "D")),),
        ),
        exact_attention,
    ),
    Hard(
        structured(
            "outer_ratio",
            lambda x, z: x[:, None] / (1 + z * z),
            lambda x, z: x[:, None] / (1 + z * z),
            {"x": [1.0, -2.0, 0.5], "z": [0.5, 3.0]},
            inputs=(Input("x", WIDE, ("N",)), Input("z", WIDE, ("M",))),
            outputs=(Output("y", WIDE, ("N", "M")),),
        ),
        lambda x, z: [[a / (1 + b * b) for b in z] for a in x],
    ),
)
