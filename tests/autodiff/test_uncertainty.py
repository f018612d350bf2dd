"""The uncertainty of results: what cancels, what is refused, and that each number has its own."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.derivatives import KINDS, Kind, values_up_to
from app.autodiff.uncertainty import AMPLIFIED, DRAWS, DRAWS_OF_LONG, estimate
from app.errors import Unprocessable
from app.gradcheck.options import Options
from app.gradcheck.target import Target
from app.requests.digits import with_uncertainty
from app.tensors.json import decode
from ops import MODES, Array, Mode, Op, Output, discover
from tests.gradcheck.checking import CPU
from tests.gradcheck.wrong.making import BOTH, elementwise, rows

UNIT = float(np.finfo(np.float64).eps)


def digits_of(
    op: Op, inputs: dict[str, Any], dtype: str = "float64", mode: Mode = "graph", last: Kind = "gradients"
) -> dict[str, tuple[Array, Array]]:
    """Return the value and the uncertainty of each result of an op, by names such as ``gradients/x``."""
    target = Target(op, {}, Options(CPU), decode, inputs)
    sample = target.in_dtype(target.samples[0], dtype)
    assert sample is not None
    directions = {"cotangents": sample.cotangents, "vectors": sample.vectors}

    def work(point, directions):
        return values_up_to(last, point, directions["cotangents"], directions["vectors"])

    def tree(values):
        return {"/".join(key): value for key, value in values.items()}

    sides = {"cotangents": "outputs", "vectors": "inputs"}
    point = sample.in_mode(mode, CPU["cpu"]).point
    values, off = with_uncertainty(work, tree, point, directions, sides)(lambda: None)
    assert off.keys() == tree(values).keys()
    return {name: (value, off[name]) for name, value in tree(values).items()}


def cancelling(a, b, c):
    """y = a b, of which b loses the digits of c: so does the gradient of a, but not that of b."""
    return a * ((b + c) - c)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", BOTH)
def test_each_number_has_its_own_uncertainty(mode: Mode, dtype: str) -> None:
    inputs = {"a": [1.3, 1.7, 0.6], "b": [1.1, 0.7, 1.9], "c": [1.1e6, 1.3e6, 1.2e6]}
    op, unit = elementwise(cancelling, None, names=("a", "b", "c"), dtypes=BOTH), float(np.finfo(dtype).eps)
    found = digits_of(op, inputs, dtype, mode)
    for name, least, most in (("outputs/y", 1e3, 1e8), ("gradients/a", 1e3, 1e8), ("gradients/b", 0, 100)):
        value, off = found[name]
        assert off.shape == value.shape
        assert (off >= least * unit).all()
        assert (off <= most * unit).all()


def test_where_exp_overflows_nothing_is_known() -> None:
    found = digits_of(discover().ops["log1pexp2"], {"x": [1.0, 700.0, 720.0]}, last="products")
    value, off = found["products/x"]
    assert 0 < off[0] < 100 * UNIT
    assert off[2] == np.inf
    assert not np.isfinite(value[2])


def test_the_inverse_of_a_nearly_singular_matrix_has_few_digits() -> None:
    for gap in (1.0, 1e-9):
        a = [[1.0, 2.0, 0.5], [2.0, 4.0 + gap, 1.0], [0.25, 1.5, 1.0]]
        op = rows(tf.linalg.inv, None, name="inverse", out=("N", "M"))
        value, off = digits_of(op, {"x": a})["outputs/y"]
        assert UNIT / gap / 10 < off.max() / np.abs(value).max() < 1e4 * UNIT / gap


@pytest.mark.parametrize("draws", [DRAWS, DRAWS_OF_LONG])
def test_few_errors_exceed_an_estimate_and_few_estimates_exceed_thirty_errors(draws: int) -> None:
    rng, size, sigma = np.random.default_rng(3), 1 << 16, 1e-9
    others = [1.0 + AMPLIFIED * sigma * rng.normal(size=size) for _ in range(draws)]
    off, error = estimate(np.ones(size), others), np.abs(sigma * rng.normal(size=size))
    assert (error > off).mean() < 0.05
    assert (off > 30 * error).mean() < 0.11


def test_a_wider_result_shows_the_error_itself() -> None:
    y, wide = np.array([1.0, 0.1, 3.0], np.float32), np.array([1 + 1e-8, 0.1, 3.0])
    off, error = estimate(y, [wide]), np.abs(y - wide)
    assert off.dtype == np.float32
    assert (error <= off).all()
    assert (off <= 1.1 * error).all()
    assert off[2] == 0


def test_a_number_that_underflows_is_not_exact() -> None:
    off = estimate(np.zeros(2, np.float32), [np.array([0.0, 1e-60])])
    assert off.dtype == np.float32
    assert (off > 0).tolist() == [False, True]


def shares(x):
    """The softmax, which TensorFlow rejects if its sum is off."""
    y = tf.nn.softmax(x)
    total = tf.reduce_sum(y, axis=-1)
    with tf.control_dependencies([tf.debugging.assert_near(total, tf.ones_like(total), atol=1e-15, rtol=0)]):
        return tf.identity(y)


def wrapped(x):
    """The exponential, in a graph of its own."""
    return tf.compat.v1.wrap_function(tf.exp, [tf.TensorSpec(None, tf.float64)])(x)


def drawn(x):
    return x + tf.random.uniform(tf.shape(x), dtype=x.dtype)


def from_numpy(x):
    return tf.ensure_shape(tf.numpy_function(np.exp, [x], x.dtype, stateful=True), x.shape)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (shares, "rejects numbers that are off by a rounding"),
        (wrapped, "calls a function as a whole"),
        (drawn, "has a kernel with a state, RandomUniform"),
        (from_numpy, "has a kernel with a state, PyFunc"),
    ],
)
def test_what_cannot_be_known_says_why(function, why: str) -> None:
    with pytest.raises(Unprocessable, match=why) as caught:
        digits_of(rows(function, None, name="planted"), {"x": [[0.5, -1.0, 2.0]]}, last=KINDS[0])
    (entry,) = caught.value.entries
    assert entry.loc == ("digits",)


def test_whole_numbers_have_none() -> None:
    def rounded(x):
        return tf.cast(tf.round(x), tf.int32)

    op = elementwise(rounded, None, outputs=(Output("y", ("int32",), differentiable=False),))
    with pytest.raises(Unprocessable, match="integers and bools"):
        digits_of(op, {"x": [1.5, 2.0]}, last=KINDS[0])
