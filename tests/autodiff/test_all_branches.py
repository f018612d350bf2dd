"""No sparse answer lacks a nonzero, however small, that appears at a later point: ops with switches and mixed units."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from app.autodiff import matrices
from app.autodiff.binding import bind
from app.autodiff.sparse_matrices import Matrix, hessian, jacobian
from app.autodiff.sparsity import Sparsity
from app.autodiff.sparsity_search import find_in_all_branches
from app.errors import OpFailed, Unprocessable
from app.kept.linearizations import Sparsities
from app.requests.sparse import SparsityOf
from app.tensors.json import decode
from ops import Example, Input, Op, Output

# More rows than are asked for one by one.
N = 70
Rule = Callable[[tf.Tensor], tf.Tensor]


def near(x: tf.Tensor, shift: int = 1) -> tf.Tensor:
    return tf.roll(x, shift, 0)


# Functions whose derivatives have nonzeros or not, as values say.
SWITCHES: Mapping[str, Rule] = {
    "where": lambda x: tf.where(x > 0, near(x) ** 2, 0),
    "relu": lambda x: tf.nn.relu(near(x)) ** 2,
    "relu6": lambda x: tf.nn.relu6(near(x)),
    "maximum": lambda x: tf.maximum(x, near(x)) ** 2,
    "minimum": lambda x: tf.minimum(near(x), 0.5),
    "abs": lambda x: tf.abs(near(x)) + near(x),
    "clip": lambda x: tf.clip_by_value(x * near(x), -0.1, 0.1),
    "no_nan": lambda x: tf.math.divide_no_nan(near(x), tf.nn.relu(x)),
    "multiply_no_nan": lambda x: tf.math.multiply_no_nan(near(x), tf.nn.relu(x)),
    "custom": tf.custom_gradient(lambda x: (x + 0, lambda dy: tf.where(x > 0, near(dy), 0))),
    "function": tf.function(lambda x: tf.where(x > 0, near(x), x), autograph=False),
    "pool": lambda x: tf.repeat(tf.nn.max_pool1d(x[None, :, None], 2, 2, "SAME")[0, :, 0], 2),
    "sort": tf.sort,
    "cond": lambda x: tf.cond(x[0] > 0, lambda: near(x), lambda: x**2),
    "gather": lambda x: tf.gather(x, tf.argsort(x)),
    "mask": lambda x: tf.cast(x > 0, x.dtype) * near(x) ** 2,
    "segments": lambda x: tf.math.unsorted_segment_sum(x, tf.cast(tf.abs(x) * 8, tf.int32), N),
}


def op_of(function: Rule, **more: Any) -> Op:
    floats = ("float64", "float32")
    return Op(
        name="switches",
        summary="an op for a test",
        doc="y = f(x)",
        function=function,
        inputs=(Input("x", dtypes=floats, shape=("n",)),),
        outputs=(Output("y", dtypes=floats, shape=("n",)),),
        source="a test",
        examples=(Example("one", {"x": [1.0, 2.0]}),),
        **more,
    )


def go_on() -> None:
    """Let long work continue."""


def at(op: Op, x: np.ndarray, dtype: str, order: int) -> tuple[Matrix, np.ndarray]:
    """Return the matrix of a derivative, and its dense numbers."""
    limits: dict[str, Any] = {"mode": "graph", "device": "/device:CPU:0", "max_elements": 1 << 20}
    point = bind(op, {"x": x.tolist()}, {}, dtype, decode, **limits)
    if order == 1:
        return jacobian(point, ("y",), ("x",)), np.asarray(matrices.jacobian(point, ("y",), ("x",), go_on)["y"]["x"])
    return hessian(point, ("x",), None), np.asarray(matrices.hessian(point, ("x",), None, go_on)["x"]["x"])


def agrees(found: tuple[Sparsity, np.ndarray], dense: np.ndarray) -> None:
    sparsity, values = found
    sparse = np.zeros_like(dense)
    sparse[sparsity.pattern.row, sparsity.pattern.column] = values
    scale = np.abs(dense) + np.abs(dense).max(initial=0) * np.finfo(dense.dtype).eps
    assert ((sparse != 0) == (dense != 0)).all()
    assert (np.abs(sparse - dense) <= 1e-5 * scale).all()


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", SWITCHES)
@given(exponents=st.tuples(*[st.integers(-12, 12)] * 2), dtype=st.sampled_from(["float64", "float32"]))
@settings(max_examples=1, deadline=None)
def test_every_nonzero_is_there_at_every_point(name: str, order: int, exponents: Any, dtype: str) -> None:
    big, small = (10.0**each for each in exponents)

    def function(x: tf.Tensor) -> tf.Tensor:
        # In color and in column with the numbers that the switch may hide.
        return big * x**2 + big * near(x, 3) ** 2 + small * SWITCHES[name](x) + small * near(x, 1) * near(x, 3)

    op, kept = op_of(function), SparsityOf(Sparsities(), "a key")
    rng = np.random.default_rng(0)
    names = list[str]()
    for x in (-rng.uniform(0.5, 1, N), rng.uniform(-1, 1, N), rng.uniform(0.5, 1, N), np.zeros(N)):
        matrix, dense = at(op, x, dtype, order)
        for given_id in [*names[:1], None]:
            try:
                found = kept.named(matrix, given_id, go_on) if given_id else kept.found(matrix, go_on)
            except Unprocessable:
                continue
            agrees(found, dense)
            names += filter(None, [kept.keep(matrix, found[0])])
    assert names, "no point has an answer"


@pytest.mark.parametrize("size", [8, N])
@pytest.mark.parametrize("rest", [lambda x: 0 * x, SWITCHES["where"], SWITCHES["sort"]])
def test_a_declaration_that_hides_a_number_fails(size: int, rest: Rule) -> None:
    diagonal = np.arange(size)
    op = op_of(lambda x: 1e9 * x + 1e-9 * (near(x) + rest(x)), sparsity=lambda dims: {"y": {"x": [diagonal, diagonal]}})
    with pytest.raises(OpFailed, match="misses a nonzero"):
        SparsityOf(Sparsities(), "").found(at(op, np.linspace(-1, 1, size), "float64", 1)[0], go_on)


FOLLOWED = ("sort", "cond", "gather", "pool", "segments")


@pytest.mark.parametrize("name", SWITCHES)
def test_the_pattern_is_that_of_all_branches(name: str) -> None:
    matrix, _ = at(op_of(SWITCHES[name]), -np.linspace(0.5, 1, N), "float64", 1)
    pattern = find_in_all_branches(matrix, go_on)
    assert (pattern is None) == (name in FOLLOWED)
    if pattern is not None:
        # A few diagonals: no switch passes a direction to places where it cannot go.
        assert len(pattern.row) <= 3 * N
        assert N - 1 in pattern.row
