"""Check sparsity: the nonzeros that a page declares."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ops import Example, Input, Op, Output
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


def op_of(sparsity: Declared) -> Op:
    return Op(
        name="differences",
        summary="squares of differences",
        doc="y_i = (x_{i+1} - x_i)²",
        function=lambda x: tf.square(x[1:] - x[:-1]),
        inputs=(Input("x", dtypes=("float64", "float32"), shape=("n",)),),
        outputs=(Output("y", dtypes=("float64", "float32"), shape=("m",)),),
        sizes=lambda dims: {"m": dims["n"] - 1},
        sparsity=sparsity,
        source="a test",
        examples=(Example("four", {"x": [1.0, -2.0, 4.0, 0.5]}),),
    )


def test_a_right_declaration_passes() -> None:
    document = report(op_of(band), checks=["sparsity"])
    assert entries(document, "sparsity", "pass")
    assert document["verdict"] == "pass"


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (only_the_diagonal, "a random product"),
        (without_the_last, "a random product"),
        (lambda dims: {}, "a random product"),
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
