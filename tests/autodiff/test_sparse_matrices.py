"""Sparse matrices of products: colorings, recovery, the search for nonzeros, and the proof that none is missing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from app.autodiff import matrices as matrices_of
from app.autodiff.binding import bind
from app.autodiff.sparse_matrices import Matrix, Missed, hessian, jacobian, nonzeros
from app.autodiff.sparsity import Subject, by_rows, colored, pattern
from app.autodiff.sparsity_search import find
from app.errors import Unprocessable
from app.kept.linearizations import Sparsities
from app.tensors.json import decode
from ops import Example, Input, Op, Output

FLOATS = ("float64", "float32", "bfloat16")


def op_of(function: Any) -> Op:
    return Op(
        name="products",
        summary="an op for a test",
        doc="y = f(x, m)",
        function=function,
        inputs=(
            Input("x", dtypes=FLOATS, shape=("n",)),
            Input("m", dtypes=FLOATS, shape=("k", "n"), differentiable=False),
        ),
        outputs=(Output("y", dtypes=FLOATS, shape=("k",)),),
        source="a test",
        examples=(Example("one", {"x": [1.0], "m": [[1.0]]}),),
    )


def form(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
    return x * tf.linalg.matvec(m, x)


def skewed(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
    """A gradient whose derivative is m, not symmetric."""

    @tf.custom_gradient
    def function(x: tf.Tensor) -> Any:
        return x, lambda dy: tf.linalg.matvec(m, x)

    return function(x)


PRODUCT, FORM, SKEWED = op_of(lambda x, m: tf.linalg.matvec(m, x)), op_of(form), op_of(skewed)


def go_on() -> None:
    """Let long work continue."""


def at(op: Op, m: np.ndarray, dtype: str = "float64") -> Any:
    inputs = {"x": np.linspace(1, 2, m.shape[1]).tolist(), "m": m.tolist() if m.size else np.zeros(m.shape)}
    return bind(op, inputs, {}, dtype, decode, mode="graph", device="/device:CPU:0", max_elements=1 << 20)


def dense(matrix: Matrix, pattern: Any, values: np.ndarray) -> np.ndarray:
    found = np.zeros(matrix.shape)
    found[pattern.row, pattern.column] = values
    return found


@st.composite
def matrices(draw: st.DrawFn, *, is_square: bool = False) -> np.ndarray:
    """Draw a band, an arrow, or nonzeros anywhere; some have lines of zeros."""
    rows = draw(st.integers(1, 40))
    columns = rows if is_square else draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    m = rng.uniform(0.5, 2, (rows, columns)) * rng.choice((-1, 1), (rows, columns))
    i, j = np.indices(m.shape)
    kept = {
        "band": abs(i - j) <= draw(st.integers(0, 3)),
        "arrow": (i == j) | (i == draw(st.integers(0, 39))) | (j == draw(st.integers(0, 39))),
        "anywhere": rng.random(m.shape) < draw(st.floats(0, 0.3)),
    }[draw(st.sampled_from(("band", "arrow", "anywhere")))]
    return np.where(kept, m, 0)


@given(matrices())
@settings(max_examples=60, deadline=None)
def test_a_jacobian_is_found_and_recovered(m: np.ndarray):
    matrix = jacobian(at(PRODUCT, m), ("y",), ("x",))
    pattern = find(matrix, go_on)
    np.testing.assert_array_equal(dense(matrix, pattern, np.ones(len(pattern.row))), m != 0)
    for has_columns in (True, False):
        sparsity = colored(pattern, go_on, has_columns=has_columns)
        assert sparsity.products <= max(m.shape)
        np.testing.assert_allclose(dense(matrix, pattern, nonzeros(matrix, sparsity, go_on)), m, rtol=1e-14)


@given(matrices(is_square=True))
@settings(max_examples=60, deadline=None)
def test_a_hessian_is_recovered_from_a_star_coloring(m: np.ndarray):
    matrix = hessian(at(FORM, m), ("x",), None)
    sparsity = colored(find(matrix, go_on), go_on, has_columns=False)
    assert sparsity.kind == "star"
    assert sparsity.products <= len(m)
    values = nonzeros(matrix, sparsity, go_on)
    np.testing.assert_allclose(dense(matrix, sparsity.pattern, values), m + m.T, rtol=1e-13, atol=1e-15)


def test_a_star_coloring_takes_few_products_where_rows_take_many():
    arrow = np.diag(np.ones(40))
    arrow[0] = 1
    sparsity = colored(find(hessian(at(FORM, arrow), ("x",), None), go_on), go_on, has_columns=False)
    assert (sparsity.products, by_rows(sparsity.pattern, go_on).products) == (2, 40)


def test_a_star_coloring_of_a_hessian_that_is_not_symmetric_is_not_used():
    m = np.diag(np.ones(6)) + np.diag(np.arange(1.0, 6), 1) + np.diag(np.arange(7.0, 12), -1)
    matrix = hessian(at(SKEWED, m), ("x",), None)
    sparsity = colored(find(matrix, go_on), go_on, has_columns=False)
    with pytest.raises(Missed):
        nonzeros(matrix, sparsity, go_on)
    values = nonzeros(matrix, by_rows(sparsity.pattern, go_on), go_on)
    np.testing.assert_allclose(dense(matrix, sparsity.pattern, values), m)


@pytest.mark.parametrize("dtype", FLOATS[:2])
@given(m=matrices(), at_random=st.integers(0, 1 << 16))
@settings(max_examples=25, deadline=None)
def test_every_missed_nonzero_is_found(dtype: str, m: np.ndarray, at_random: int):
    matrix = jacobian(at(PRODUCT, m, dtype), ("y",), ("x",))
    pattern = find(matrix, go_on)
    if not len(pattern.row):
        return
    missing = np.arange(len(pattern.row)) != at_random % len(pattern.row)
    less = replace(pattern, row=pattern.row[missing], column=pattern.column[missing])
    for sparsity in (by_rows(less, go_on), colored(less, go_on, has_columns=True)):
        with pytest.raises(Missed):
            nonzeros(matrix, sparsity, go_on)
    nonzeros(matrix, colored(pattern, go_on, has_columns=True), go_on)


@pytest.mark.parametrize(("dtype", "random_products"), [("float64", 1), ("float32", 3)])
def test_coarse_numbers_are_verified_by_more_products(dtype: str, random_products: int):
    matrix, counts = jacobian(at(PRODUCT, np.eye(5), dtype), ("y",), ("x",)), list[int]()

    def pull(dys: Any) -> Any:
        counts.append(len(dys["y"]))
        return matrix.pull(dys)

    sparsity = by_rows(find(matrix, go_on), go_on)
    nonzeros(replace(matrix, pull=pull), sparsity, go_on)
    assert sum(counts) == sparsity.products + random_products


def test_a_coloring_that_takes_much_memory_is_refused():
    every, zero = np.arange(40_000), np.zeros(40_000, int)
    slots = (("x", every.shape),)
    first, second = (Subject("op", (), order, slots, slots) for order in (1, 2))
    arrow = pattern(first, np.concatenate([every, every]), np.concatenate([every, zero]), {})
    with pytest.raises(Unprocessable, match="too many"):
        by_rows(arrow, go_on)
    assert colored(arrow, go_on, has_columns=True).products == 2
    both = arrow.joined(pattern(first, zero, every, {}))
    with pytest.raises(Unprocessable, match="too many"):
        colored(both, go_on, has_columns=True)
    assert colored(replace(both, of=second), go_on, has_columns=False).products == 2


def test_an_input_without_numbers_has_no_nonzeros():
    matrix = hessian(at(op_of(lambda x, m: x + tf.linalg.matvec(m, x)), np.zeros((0, 0))), ("x",), None)
    assert matrix.left(np.zeros((3, 0))).shape == (3, 0)
    assert len(find(matrix, go_on).row) == 0


def narrow(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
    """A band that is computed in float32, whatever the dtype."""
    return tf.cast(tf.linalg.matvec(tf.cast(m, tf.float32), tf.cast(x, tf.float32)), x.dtype)


def test_what_rounds_inside_is_verified_by_its_own_rounding():
    m = np.diag(np.linspace(1, 2, 200)) + np.diag(np.linspace(0.1, 0.7, 199), 1)
    matrix = jacobian(at(op_of(narrow), m), ("y",), ("x",))
    sparsity = colored(find(matrix, go_on), go_on, has_columns=True)
    for _ in range(20):
        nonzeros(matrix, sparsity, go_on)


def test_a_kernel_that_takes_no_axis_of_directions_runs_one_by_one():
    # TensorFlow's vectorisation has no converter for the second order of its branches.
    op = Op(
        name="exponential",
        summary="an op for a test",
        doc="y = exp(x)",
        function=tf.linalg.expm,
        inputs=(Input("x", dtypes=FLOATS[:2], shape=("n", "n")),),
        outputs=(Output("y", dtypes=FLOATS[:2], shape=("n", "n")),),
        source="a test",
        examples=(Example("one", {"x": [[1.0]]}),),
    )
    limits: dict[str, Any] = {"mode": "graph", "device": "/device:CPU:0", "max_elements": 1 << 20}
    x = np.array([[0.3, 0.2], [0.1, 0.45]])
    dense = [
        matrices_of.hessian(
            bind(op, {"x": x.tolist()}, {}, "float64", decode, **limits | {"mode": mode}), ("x",), None, go_on
        )
        for mode in ("graph", "eager")
    ]
    np.testing.assert_allclose(dense[0]["x"]["x"], dense[1]["x"]["x"], rtol=1e-12)


def test_what_has_no_room_is_not_kept():
    sparsity = by_rows(find(jacobian(at(PRODUCT, np.eye(5)), ("y",), ("x",)), go_on), go_on)
    assert not Sparsities(sparsity.bytes - 1).add(sparsity, "", "a use")
    assert Sparsities(sparsity.bytes).add(sparsity, "", "a use")


def test_numbers_too_coarse_to_verify_are_refused():
    for of in (lambda point: jacobian(point, ("y",), ("x",)), lambda point: hessian(point, ("x",), None)):
        with pytest.raises(Unprocessable, match="so coarse"):
            of(at(PRODUCT, np.eye(2), "bfloat16"))
