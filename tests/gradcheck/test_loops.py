"""An op with a loop: few numbers are moved one by one, and directions through all find what is wrong elsewhere."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.gradcheck.comparison import DIRECTIONS, FEW_COORDINATES
from ops import Example, Input, Op, Output, Tensor
from tests.gradcheck.checking import entries, report

pytestmark = pytest.mark.slow

SIZE = 16


def _decaying_sum(x: Tensor) -> Tensor:
    """Return s of s = x[i] + s / 2, over all i."""
    _, total = tf.while_loop(
        lambda i, total: i < SIZE, lambda i, total: (i + 1, x[i] + total / 2), (0, tf.zeros((), x.dtype))
    )
    return total


def _op(factors: list[float], *, with_loop: bool = True) -> Op:
    weights = [2.0 ** (1 + i - SIZE) for i in range(SIZE)]

    @tf.custom_gradient
    def function(x: Tensor):
        y = _decaying_sum(x) if with_loop else tf.reduce_sum(x * tf.constant(weights, x.dtype))
        return y, lambda dy: dy * tf.constant([w * f for w, f in zip(weights, factors, strict=True)], x.dtype)

    return Op(
        name="decaying_sum",
        summary="",
        doc=None,
        function=function,
        inputs=(Input("x", ("float64",), shape=(SIZE,)),),
        outputs=(Output("y", ("float64",), shape=()),),
        mechanism="custom_gradient",
        source="",
        examples=(Example("one", {"x": [1.0 + i / SIZE for i in range(SIZE)]}),),
    )


def _derivative(op: Op) -> dict[str, Any]:
    return report(op, checks=["derivative"], modes=("graph",))


@pytest.mark.parametrize(("with_loop", "count"), [(True, FEW_COORDINATES), (False, SIZE)])
def test_few_numbers_are_moved_one_by_one_where_a_row_runs_a_loop(with_loop: bool, count: int) -> None:
    found = _derivative(_op([1.0] * SIZE, with_loop=with_loop))
    [passed] = (one for one in entries(found, "derivative", "pass") if one["output"] == "y")
    assert passed["points"] % (count + DIRECTIONS) == 0


def test_each_number_counts_all_the_same() -> None:
    chosen = np.random.default_rng(0).choice(SIZE, FEW_COORDINATES, replace=False)
    wrong = max(set(range(SIZE)) - set(chosen.tolist()))
    found = _derivative(_op([1.01 if i == wrong else 1.0 for i in range(SIZE)]))
    [failed] = (one for one in entries(found, "derivative") if one["output"] == "y")
    assert failed["worst"]["index"] is None


@pytest.mark.parametrize("seed", range(4))
def test_a_loop_in_float32_rounds_inside(seed: int) -> None:
    numbers = [[-1.16, -0.14], [1.0757, -0.89], [0.04, -0.89]]  # at 1.0757, the terms of the second derivative cancel
    op = Op(
        name="mapped",
        summary="",
        doc=None,
        function=lambda x: tf.map_fn(lambda row: tf.sin(row) * row, x),
        inputs=(Input("x", ("float64", "float32"), shape=(3, 2)),),
        outputs=(Output("y", ("float64", "float32"), shape=(3, 2)),),
        source="",
        examples=(Example("one", {"x": numbers}),),
    )
    assert report(op, checks=["dtypes"], seed=seed)["verdict"] == "pass"
