"""Random rounding shows the size of terms that cancel: in sums, gradients, loops and NumPy functions."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.derivatives import Kind, values_up_to
from app.autodiff.random_errors import NO_LOSSES, RandomErrors
from app.autodiff.random_rounding import RandomRounding
from app.gradcheck import reference, rounding
from app.gradcheck.inner_errors import InnerErrors
from app.gradcheck.options import Options
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.runtime import modes
from app.tensors.json import decode
from ops import FLOATS, Op, discover
from tests.gradcheck.checking import CPU
from tests.gradcheck.wrong.making import elementwise, rows

UNIT = rounding.eps("float64")


def sample_of(op: Op, **inputs) -> Sample:
    (sample,) = Target(op, {}, Options(CPU), decode, inputs).samples
    return sample


def terms(op: Op, kind: Kind, x) -> np.ndarray:
    """Return how far the values move, in units of the errors inside the op."""
    sample, scale = sample_of(op, x=x).up_to(kind), rounding.measured_with("float64")
    at, whole, half = sample.with_errors(0.0, scale, scale / 2)
    (found,) = [value for key, value in rounding.terms_of(at[0], whole, half, scale).items() if key[0] == kind]
    return found


def exact_numbers(x):
    """What a loop gets has digits, though the constants beside it have few."""
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, (y + 2.0**20) - 2.0**20), [0, x / 3])[1]


def exact_numbers_in_a_branch(x):
    y = x / 3
    return tf.cond(tf.reduce_sum(x) > 0, lambda: (y + 2.0**20) - 2.0**20, lambda: y)


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (lambda x: (x + 1e6) - 1e6, 1e6),
        (lambda x: x * 3, 3.0),
        (lambda x: tf.sigmoid(x / 1e-4) - tf.sigmoid(-x / 1e-4), 0.5),
        (lambda x: tf.math.real(tf.square(tf.complex(500 * x, 500 * x))), 1e6),
        (lambda x: tf.math.imag(tf.exp(tf.complex(x / 4, 5e-21 * x))), 1e-20),
        (lambda x: tf.signal.irfft(tf.signal.rfft(tf.stack([x, x + 1e6, x, x], axis=-1)), [4])[..., 0], 1e6),
        (lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, (y + 1e6) - 1e6), [0, x])[1], 1e6),
        (lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: (x + 1e6) - 1e6, lambda: x), 1e6),
        (exact_numbers, 2.0**20),
        (exact_numbers_in_a_branch, 2.0**20),
        (lambda x: tf.abs(tf.reshape(-x, [-1])), 0.0),
    ],
    ids=[
        "a sum",
        "a product",
        "a difference at 0",
        "a complex square",
        "a small imaginary part",
        "a Fourier transform",
        "a loop",
        "a branch",
        "exact numbers in a loop",
        "in a branch",
        "nothing that rounds",
    ],
)
def test_the_size_of_the_terms_is_known(function, size) -> None:
    x = [0.0, 1e-9] if size == 0.5 else [1.0, 2.0]
    found = terms(elementwise(function, None, name="planted"), "outputs", x)
    assert (found >= size / 3).all()
    assert (found <= 12 * size).all()


def test_the_terms_of_a_second_order_that_is_0_are_known() -> None:
    """σ''(0) is 0: two terms of 1e7 cancel."""
    op = elementwise(lambda x: tf.sigmoid(x / 1e-4), None, name="planted")
    assert terms(op, "products", [0.0])[0] > 1e6
    assert sample_of(op, x=[0.0]).error_bounds("products", "float64")["x"][0] > 1e6 * UNIT


def test_the_terms_of_a_gradient_in_a_loop_are_known() -> None:
    """1 - tanh² has few digits left at 17."""

    def recurrence(x):
        return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, tf.tanh(x + y)), [0, tf.zeros_like(x)])[1]

    found = terms(elementwise(recurrence, None, name="planted"), "gradients", [17.0])
    assert 0.1 < found[0] < 12


def test_nothing_is_differentiated_with_respect_to_the_errors() -> None:
    """A loop keeps what its gradient needs in each iteration, and makes it for all that is not constant."""
    with tf.Graph().as_default():
        scale, x = tf.constant(1e-3, tf.float64), tf.constant(2.0)
        y = RandomErrors(scale, tf.constant(0), "all", NO_LOSSES, is_elementwise=True).off(x)
        assert tf.gradients(y, [scale]) == [None]
        assert tf.gradients(y, [x]) != [None]


@pytest.mark.parametrize("has_tapes", [True, False])
def test_errors_do_not_multiply_in_the_second_order_of_a_loop(has_tapes: bool) -> None:
    def recurrence(x):
        return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, tf.tanh(x * y)), [0, x])[1]

    sample = sample_of(elementwise(recurrence, None, name="planted"), x=[0.5])
    call = values_up_to("products", sample.point, sample.cotangents, sample.vectors)
    program = RandomRounding(call.program, has_tapes=has_tapes)
    plain = modes.trace_of(call.program, "graph", call.leaves, CPU["cpu"])
    off = modes.trace_of(program, "graph", [*call.leaves, np.array(1e-9), np.array(0)], CPU["cpu"])
    assert off.nodes < 5 * plain.nodes


def test_without_errors_the_values_are_those_of_the_op() -> None:
    sample = sample_of(rows(tf.nn.softmax, None, name="planted"), x=[[0.5, -1.0, 2.0]])
    ((values,),) = sample.with_errors(0.0)
    for key, value in sample.values.items():
        np.testing.assert_allclose(values[key], value, rtol=1e-14)


@pytest.mark.parametrize("function", [tf.nn.softmax, lambda x: tf.cumsum(x, axis=1), lambda x: tf.cumsum(x, axis=-1)])
def test_rows_side_by_side_move_as_far_as_one_after_the_other(function) -> None:
    joined = rows(function, None, name="planted")
    x = np.linspace(-1.0, 2.0, 24).reshape(3, 8)
    spreads = []
    for op in (joined, replace(joined, batching="none")):
        sample = sample_of(op, x=x)
        (drawn,) = sample.with_errors(1e-6, draws=64)
        spreads.append({key: np.std([each[key] for each in drawn], axis=0) for key in drawn[0]})
    side_by_side, looped = spreads
    for key, spread in side_by_side.items():
        assert ((spread > 0) == (looped[key] > 0)).all()
        np.testing.assert_allclose(spread, looped[key], rtol=0.6)


def test_equal_seeds_have_equal_errors() -> None:
    sample = sample_of(elementwise(tf.exp, None, name="planted"), x=[1.0, 2.0])
    one, other = (sample.again().rounding.bounds for _ in range(2))
    assert all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("kind", ["outputs", "gradients"])
def test_an_exponent_stays_whole(kind: Kind) -> None:
    """The power of -1 is NaN if 1 + 2 is off, and its derivative if 3 - 1 is."""
    cube = elementwise(lambda x: x ** (tf.cast(tf.rank(x), x.dtype) + 2), None, name="planted")
    found = terms(cube, kind, [-1.0])
    assert 0 < found[0] < 100


def test_a_gradient_that_only_c_plus_plus_has_runs_with_errors() -> None:
    sample = sample_of(discover().ops["relu"], x=[-1.5, 2.0])
    errors = InnerErrors("gradients", sample.point, sample.cotangents, sample.vectors, 2)
    ((found, _),) = errors.values(1e-8)
    np.testing.assert_allclose(found["gradients", "x"], sample.values["gradients", "x"], rtol=1e-6)


def test_an_op_that_rejects_numbers_that_are_off_has_bounds() -> None:
    def shares(x):
        y = tf.nn.softmax(x)
        total = tf.reduce_sum(y, axis=-1)
        with tf.control_dependencies([tf.debugging.assert_near(total, tf.ones_like(total), atol=1e-13, rtol=0)]):
            return tf.identity(y)

    bounds = sample_of(rows(shares, None, name="planted"), x=[[0.5, -1.0, 2.0]]).error_bounds("gradients", "float64")
    assert 0 < bounds["x"].max() < 1e-13


def test_a_trace_of_the_author_keeps_no_tensor_of_ours() -> None:
    """The function is traced for the first time while its caller is."""
    inner = tf.function(lambda x: tf.exp(x) * 2, autograph=False)
    sample = sample_of(elementwise(lambda x: inner(x) + 1, None, name="planted"), x=[1.0])
    assert sample.with_errors(1e-6)
    assert float(inner(tf.constant(0.0, tf.float64))) == 2.0
    assert sample.values


def test_a_function_with_a_state_runs_once_for_each_run_of_the_op() -> None:
    counted = list[int]()

    def count(x):
        counted.append(1)
        return x

    def function(x):
        y = tf.numpy_function(count, [tf.exp(x)], x.dtype, stateful=True)
        return tf.ensure_shape(y, x.shape)

    sample = sample_of(elementwise(function, None, name="planted"), x=[1.0]).up_to("outputs")
    sample.with_errors(1e-6)
    counted.clear()
    sample.with_errors(1e-6)
    assert len(counted) == 1


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_bars_follow_the_size_of_the_numbers(size) -> None:
    sample = sample_of(elementwise(lambda x: size * x**2, None, name="planted"), x=[1.0, 2.0])
    for bound in sample.error_bounds("gradients", "float64").values():
        assert (bound >= size * UNIT).all()
        assert (bound <= 1000 * size * UNIT).all()


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-5), ("float16", 0.01), ("bfloat16", 0.08)])
def test_bars_of_narrow_dtypes_are_some_units_where_nothing_cancels(dtype, most) -> None:
    sample = sample_of(elementwise(tf.exp, None, name="planted", dtypes=FLOATS), x=[3.0, 5.0])
    bound = sample.error_bounds("gradients", dtype)["x"]
    assert (bound <= most * np.abs(sample.values["gradients", "x"])).all()


def test_a_number_may_be_lost_if_what_it_is_computed_from_underflows() -> None:
    """σ''(100 x) underflows before it is multiplied by 1e4. A root must not underflow because a square does."""
    op = elementwise(lambda x: tf.sigmoid(100 * x), None, name="planted", dtypes=("float32", "float64"))
    sample = sample_of(op, x=[-0.9])
    wide = sample.values["products", "x"]
    assert rounding.underflow("float32") < abs(wide[0]) < sample.error_bounds("products", "float32")["x"][0]
    norm = elementwise(lambda x: tf.sqrt(x * x), None, name="planted", dtypes=("float32", "float64"))
    assert sample_of(norm, x=[1e-20]).error_bounds("outputs", "float32")["y"][0] < 1e-25


def test_bars_of_narrow_dtypes_know_what_cancels() -> None:
    """1 - tanh² has no digit left at 4 in half precision."""
    op = elementwise(lambda x: 1 - tf.tanh(x) ** 2, None, name="planted", dtypes=FLOATS)
    sample = sample_of(op, x=[4.0])
    assert sample.error_bounds("outputs", "float16")["y"][0] > sample.values["outputs", "y"][0] / 2


def test_the_spread_of_numbers_without_digits_counts_more() -> None:
    """A few draws show no tails of their distribution."""
    few, many = (rounding.in_narrow(np.ones(1), np.array([spread]), "float16")[0] / spread for spread in (0.5, 0.1))
    assert few > 2 * many


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (lambda xs: {"y": np.log(1 + xs["x"])}, 1.0),
        (lambda xs: {"y": (np.sin(xs["x"]) + 1e6) - 1e6}, 1e6),
        (lambda xs: {"y": np.sum(xs["x"] * 1e6, axis=0, keepdims=True) - 1e6}, 1e6),
        (lambda xs: {"y": np.real(np.square(1e3 * xs["x"] * (1 + 1j)))}, 1e6),
        (lambda xs: {"y": np.real(np.square(np.repeat(xs["x"], 2).view(complex)))}, 0.5),
        (lambda xs: {"y": -np.abs(xs["x"])}, 0.0),
    ],
)
def test_the_terms_of_numpy_functions_are_known(function, size) -> None:
    found = reference.terms(function, {"x": np.array([0.25, 0.75])})["y"]
    assert (found >= size / 20).all()
    assert (found <= 12 * size).all()


def test_a_numpy_function_that_refuses_the_class_has_no_terms() -> None:
    def function(xs):
        if type(xs["x"]) is not np.ndarray:
            raise TypeError
        return {"y": xs["x"] + 1}

    assert not reference.terms(function, {"x": np.ones(3)})["y"].any()
