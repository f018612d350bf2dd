"""Check sparsity: the nonzeros that a page declares."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf

from ops import Attrs, Example, Input, Op, Output
from tests.gradcheck.checking import entries, failed, report

Declared = Callable[[Mapping[str, Any]], Any]


def band(dims: Mapping[str, Any]) -> Any:
    rows = np.arange(dims["n"] - 1)
    return {"y": {"x": (np.concatenate([rows, rows]), np.concatenate([rows, rows + 1]))}}


def only_the_diagonal(dims: Mapping[str, Any]) -> Any:
    rows = np.arange(dims["n"] - 1)
    return {"y": {"x": (rows, rows)}}


def without_the_last(dims: Mapping[str, Any]) -> Any:
    rows, columns = band(dims)["y"]["x"]
    return {"y": {"x": (rows[:-1], columns[:-1])}}


def op_of(sparsity: Declared, function: Callable[..., Any] = lambda x: tf.square(x[1:] - x[:-1]), **fields: Any) -> Op:
    return Op(
        name="differences",
        summary="squares of differences",
        doc="y_i = (x_{i+1} - x_i)²",
        function=function,
        inputs=(Input("x", dtypes=("float64", "float32"), shape=("n",)),),
        outputs=(Output("y", dtypes=("float64", "float32"), shape=("m",)),),
        sizes=lambda dims: {"m": dims["n"] - 1},
        sparsity=sparsity,
        source="a test",
        examples=(Example("four", {"x": [1.0, -2.0, 4.0, 0.5]}),),
        **fields,
    )


def test_a_right_declaration_passes() -> None:
    document = report(op_of(band), checks=["sparsity"])
    assert entries(document, "sparsity", "pass")
    assert document["verdict"] == "pass"


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (only_the_diagonal, "product of the jacobian"),
        (without_the_last, "product of the jacobian"),
        (lambda dims: {}, "product of the jacobian"),
        (lambda dims: {"y": {"x": ([dims["n"]], [0])}}, "sparsity raised"),
        (lambda dims: {"z": {}}, "expected some of y"),
        (lambda dims: {"y": {"x": ([0], [0, 1])}}, "sparsity raised"),
        (lambda dims: {"y": {"x": ([0.5], [0])}}, "sparsity raised"),
        (lambda dims: None, "sparsity raised"),
    ],
)
def test_a_wrong_declaration_fails(declared: Declared, reason: str) -> None:
    document = report(op_of(declared), checks=["sparsity"])
    assert failed(document) == ["sparsity"]
    assert reason in entries(document, "sparsity")[0]["sentence"]


class Shift(Attrs):
    """How many numbers each number is compared with the one behind it."""

    behind: Literal[1, 2] = 1


def differences(x: tf.Tensor, behind: int = 1) -> tf.Tensor:
    return tf.square(x[1:] - tf.concat([x[:1]] * (behind - 1) + [x[:-behind]], axis=0))


def where(condition: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function whose last number depends on the first one where a condition holds."""

    def function(x: tf.Tensor) -> tf.Tensor:
        first = tf.concat([tf.zeros_like(x[2:]), x[:1]], axis=0)
        return tf.square(x[1:] - x[:-1]) + tf.where(condition(x), first, 0)

    return function


# Each declares a band, and is right at the points of the examples.
RARE = {
    "up to 64": (op_of(band, where(lambda x: tf.size(x) > 64)), " at n = 65"),
    "but at 9": (op_of(band, where(lambda x: tf.size(x) == 9)), " at n = 9"),
    "up to a block of 256": (op_of(band, where(lambda x: tf.size(x) > 256)), " at n = 257"),
    "with the first choice of attributes": (op_of(band, differences, attrs=Shift), " with {'behind': 2}"),
    "in 98 % of the domain": (op_of(band, where(lambda x: x[0] > 2.88)), " at another point"),
    "where the first number is not 0": (op_of(band, where(lambda x: x[0] == 0)), " at a special point"),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
@pytest.mark.parametrize("rare", RARE)
def test_a_declaration_that_is_right_elsewhere_fails(rare: str, seed: int) -> None:
    op, words = RARE[rare]
    document = report(op, checks=["sparsity"], seed=seed)
    assert failed(document) == ["sparsity"]
    (entry,) = entries(document, "sparsity")
    assert entry["sentence"].startswith(f"the declared sparsity is wrong{words}")
    assert "product of the jacobian" in entry["sentence"]
