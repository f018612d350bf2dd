"""Ops that declare independent rows and join them: each in a way of its own."""

from typing import Literal

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Arrays, Attrs, Claim, Example, Formula, Input, Output, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, MATRIX
from tests.rows.making import seeming


def after_huge(x: Tensor) -> Tensor:
    """x³; -x³ everywhere if any magnitude in any row is above a million."""
    return tf.where(tf.reduce_any(tf.abs(x) > 1e6), -x * x * x, x * x * x)


def after_infinity(x: Tensor) -> Tensor:
    """x²; 0 everywhere if any number of any row is infinite."""
    return tf.where(tf.reduce_any(tf.math.is_inf(x)), tf.zeros_like(x), x * x)


def after_large(x: Tensor) -> Tensor:
    """x²; halved everywhere if any number of any row is above 2.5."""
    return tf.cond(tf.reduce_any(x > 2.5), lambda: x * x / 2, lambda: x * x)


def after_nan(x: Tensor) -> Tensor:
    """x²; NaN everywhere if any number of any row is NaN."""
    any_nan = tf.reduce_any(tf.math.is_nan(x))
    return tf.cond(any_nan, lambda: x * np.nan, lambda: x * x)


def after_twins(x: Tensor) -> Tensor:
    """x²; 1 more everywhere if two rows are equal, as repeated rows are."""
    distances = tf.reduce_sum(tf.square(tf.expand_dims(x, 0) - tf.expand_dims(x, 1)), axis=-1)
    equal = tf.reduce_sum(tf.cast(tf.equal(distances, 0), tf.int32))
    return x * x + tf.cast(equal > tf.shape(x)[0], x.dtype)


def after_zero(x: Tensor) -> Tensor:
    """exp(x); doubled everywhere if any number of any row is 0, as padding may be."""
    return tf.exp(x) * (1 + tf.cast(tf.reduce_any(tf.equal(x, 0)), x.dtype))


def alternating(x: Tensor) -> Tensor:
    """x, where every other row has its sign changed."""
    place = tf.range(tf.shape(x)[0])
    return tf.where(tf.expand_dims(place % 2, -1) > 0, -x, x)


def asserted_together(x: Tensor) -> Tensor:
    """exp(x), which TensorFlow refuses where the sum of all rows is negative: a row fails or passes by its company."""
    least = tf.constant(-1.0, x.dtype)
    message = "the rows have a small sum"
    with tf.control_dependencies([tf.debugging.assert_greater_equal(tf.reduce_sum(x), least, message=message)]):
        return tf.exp(tf.identity(x))


def batch_norm(x: Tensor) -> Tensor:
    """Each column with mean 0 and variance 1 over all rows."""
    centred = x - tf.reduce_mean(x, axis=0)
    return centred / tf.sqrt(tf.reduce_mean(tf.square(centred), axis=0) + 0.125)


class CentreAttrs(Attrs):
    over: Literal["row", "all"] = "row"


def by_attribute(x: Tensor, *, over: str) -> Tensor:
    """x less its mean over the row, or over all rows, as an attribute says."""
    return x - (tf.reduce_mean(x, axis=-1, keepdims=True) if over == "row" else tf.reduce_mean(x))


X = {"x": [[1.0, 2.0, -0.5], [0.25, -1.5, 1.0]]}


def centred_columns(x: Tensor) -> Tensor:
    """Each row less the mean of all rows."""
    return x - tf.reduce_mean(x, axis=0)


def clipped_by_global_norm(x: Tensor) -> Tensor:
    """The identity, with its cotangent shortened where all of it is longer than 1."""
    return tf.identity(x)


def clipped_by_global_norm_vjp(x: Tensor, dy: Tensor) -> Tensor:
    length = tf.sqrt(tf.reduce_sum(dy * dy))
    return dy / tf.maximum(length, 1)


def clipped_by_global_norm_claim(attrs: Attrs) -> Claim:
    return Claim(first=Formula(clipped), linear=False)


def clipped(primals: Arrays, cotangents: Arrays) -> Arrays:
    return (cotangents[0] / max(1.0, float(np.linalg.norm(cotangents[0]))),)


def converging(x: Tensor) -> Tensor:
    """√x by Newton's steps until all rows have converged: a row that is exact moves on beside others."""

    def goes_on(y: Tensor) -> Tensor:
        return tf.reduce_any(tf.abs(y * y - x) > 1e-3 * x)

    def body(y: Tensor) -> tuple[Tensor]:
        return ((y + x / y) / 2,)

    return tf.while_loop(goes_on, body, (x,), maximum_iterations=40)[0]


def coupled_gradient(x: Tensor) -> Tensor:
    """x², with the mean cotangent of all rows in the gradient of each."""
    return x * x


def coupled_gradient_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return 2 * x * (dy + tf.reduce_mean(dy, axis=0)) / 2


def coupled_second(x: Tensor) -> Tensor:
    """x³ with its gradient, whose own gradient takes the mean of all rows."""
    return x * x * x


def coupled_second_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return 3 * x * x * dy


def coupled_second_vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    return 6 * x * dy * tf.reduce_mean(ddx, axis=0), 3 * x * x * ddx


def coupled_zero_cotangent(x: Tensor) -> Tensor:
    """x², with a gradient that is 0 everywhere if any number of any cotangent is 0."""
    return x * x


def coupled_zero_cotangent_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return tf.where(tf.reduce_any(tf.equal(dy, 0)), tf.zeros_like(dy), 2 * x * dy)


def cumulative_rows(x: Tensor) -> Tensor:
    """Each row is the sum of itself and all rows before it."""
    return tf.cumsum(x, axis=0)


def dropout(x: Tensor) -> Tensor:
    """Numbers set to 0 by chance, with the same seed for each call: what a row loses depends on its place."""
    kept = tf.random.stateless_uniform(tf.shape(x), seed=[1, 2], dtype=x.dtype) < 0.75
    return tf.where(kept, x / 0.75, tf.zeros_like(x))


def first_row(x: Tensor) -> Tensor:
    """x, where the first row counts twice."""
    return tf.concat([2 * x[:1], x[1:]], axis=0)


def following(x: Tensor) -> Tensor:
    """Each row times the one after it, 1 after the last."""
    return x * tf.concat([x[1:], tf.ones_like(x[:1])], axis=0)


def in_eager(x: Tensor) -> Tensor:
    """x² in a graph; less the mean of all rows where it runs eagerly."""
    return x * x - tf.reduce_mean(x, axis=0) if tf.executing_eagerly() else x * x


def in_float32(x: Tensor) -> Tensor:
    """x² in float64; in float32, less the mean of all rows."""
    return x * x - tf.reduce_mean(x, axis=0) if x.dtype == tf.float32 else x * x


def centred(x: Array) -> Array:
    return x - x.mean(0)


def in_python(x: Tensor) -> Tensor:
    """Each row less the mean of all rows, in Python, where no graph shows it."""
    return tf.ensure_shape(tf.numpy_function(centred, [x], x.dtype), x.shape)


def in_python_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return dy - tf.reduce_mean(dy, axis=0)


def last_row(x: Tensor) -> Tensor:
    """x, where the last row counts twice."""
    return tf.concat([x[:-1], 2 * x[-1:]], axis=0)


def many_rows(x: Tensor) -> Tensor:
    """x², less the mean of all rows where there are more than four."""
    is_many = tf.cast(tf.shape(x)[0] > 4, x.dtype)
    return x * x - is_many * tf.reduce_mean(x, axis=0)


def many_rows_alone(x: Tensor) -> Tensor:
    """x² of up to 32 rows, x² + 1 of more."""
    return x * x + tf.cast(tf.shape(x)[0] > 32, x.dtype)


def max_normalised(x: Tensor) -> Tensor:
    """All rows divided by the largest magnitude among them."""
    return x / tf.maximum(tf.reduce_max(tf.abs(x)), 0.125)


def mean_gradient(x: Tensor) -> Tensor:
    """x², with its gradient divided by the number of rows."""
    return x * x


def mean_gradient_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return 2 * x * dy / tf.cast(tf.shape(x)[0], x.dtype)


def neighbours(x: Tensor, other: Tensor) -> Tensor:
    """Each row plus the row that an index of its own names, counted among all rows."""
    return x + tf.gather(x, other % tf.shape(x)[0])


OTHER = Input("other", ("int32",), ("N",), differentiable=False, domain=(0.0, 5.5))


def one_output_of_two(x: Tensor) -> tuple[Tensor, Tensor]:
    """x², and the mean of all rows: only the second output joins rows."""
    return x * x, tf.zeros_like(x) + tf.reduce_mean(x, axis=0)


def rolled(x: Tensor) -> Tensor:
    """Each row less the row before it, the first less the last."""
    return x - tf.roll(x, shift=1, axis=0)


def row_count(x: Tensor) -> Tensor:
    """x² divided by the number of rows."""
    return x * x / tf.cast(tf.shape(x)[0], x.dtype)


def shared_weights(x: Tensor, w: Tensor) -> Tensor:
    """x W, where both have a leading axis and only that of x is one of rows."""
    return x + tf.reduce_sum(w, axis=0)


def softmax_of_columns(x: Tensor) -> Tensor:
    """The softmax over all rows, where another runs over each row."""
    return tf.nn.softmax(x, axis=0)


def sorted_columns(x: Tensor) -> Tensor:
    """Each column in ascending order."""
    return tf.sort(x, axis=0)


OPS = (
    seeming(after_huge),
    seeming(after_infinity),
    seeming(after_large),
    seeming(after_nan),
    seeming(after_twins),
    seeming(after_zero),
    seeming(alternating),
    seeming(asserted_together, slot={"domain": (-2.0, 3.0)}, modes=UNCOMPILED),
    seeming(batch_norm),
    seeming(
        by_attribute,
        attrs=CentreAttrs,
        examples=(Example("of the row", X), Example("of all", X, {"over": "all"})),
    ),
    seeming(centred_columns),
    seeming(
        custom_gradient(clipped_by_global_norm, clipped_by_global_norm_vjp),
        claim=clipped_by_global_norm_claim,
    ),
    seeming(converging, slot={"domain": (0.25, 100.0)}),
    seeming(custom_gradient(coupled_gradient, coupled_gradient_vjp)),
    seeming(custom_gradient(coupled_second, coupled_second_vjp, coupled_second_vjp_vjp)),
    seeming(custom_gradient(coupled_zero_cotangent, coupled_zero_cotangent_vjp)),
    seeming(cumulative_rows),
    seeming(dropout),
    seeming(first_row),
    seeming(following),
    seeming(in_eager, modes=UNCOMPILED),
    seeming(in_float32),
    seeming(custom_gradient(in_python, in_python_vjp), modes=UNCOMPILED),
    seeming(last_row),
    seeming(many_rows),
    seeming(many_rows_alone),
    seeming(max_normalised),
    seeming(custom_gradient(mean_gradient, mean_gradient_vjp)),
    seeming(neighbours, inputs=[Input("x", BOTH, MATRIX), OTHER]),
    seeming(one_output_of_two, outputs=(Output("y", BOTH, MATRIX), Output("mean", BOTH, MATRIX))),
    seeming(rolled),
    seeming(row_count),
    seeming(shared_weights, inputs=[Input("x", BOTH, MATRIX), Input("w", BOTH, MATRIX)]),
    seeming(softmax_of_columns),
    seeming(sorted_columns),
)
