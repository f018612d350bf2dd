"""Rows: the checker finds those that depend on each other, and those that are independent but not declared."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from ops import Attrs, Example, Input, InvalidInput, Op, Output, custom_gradient, discover
from tests.gradcheck.checking import entries, failed, report
from tests.gradcheck.op_makers import WIDE, elementwise
from tests.gradcheck.wrong.rows import OPS

pytestmark = pytest.mark.slow

MATRIX, OUT = (Input("x", WIDE, ("N", "M")),), (Output("y", WIDE, ("N", "M")),)
EXAMPLE = (Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]]}),)
TABLE = (Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]], "w": [1.5, -0.75]}),)


def undeclared(function, **changes) -> Op:
    """Return an op of the rows of a matrix that declares no batching."""
    fields = {"inputs": MATRIX, "outputs": OUT, "examples": EXAMPLE, "batching": "none"}
    return elementwise(function, **(fields | changes))


def sentences(op: Op) -> list[str]:
    document = report(op, checks=["batching"], modes=("graph",))
    assert not failed(document), document["sentence"]
    return [entry["sentence"] for entry in entries(document, "batching", "skipped")]


@pytest.mark.share(2)
@pytest.mark.parametrize("planted", OPS.values(), ids=OPS)
def test_rows_that_depend_on_each_other_fail(planted) -> None:
    document = report(planted.op, checks=["batching"], modes=("graph",))
    assert failed(document) == ["batching"]
    assert planted.words in entries(document, "batching")[0]["sentence"]


INDEPENDENT = {
    "elementwise": (
        undeclared(tf.sin, inputs=(Input("x", WIDE),), outputs=(Output("y", WIDE),)),
        'batching="elementwise"',
    ),
    "leading_axis": (undeclared(tf.nn.softmax), 'batching="leading_axis"'),
    "leading_axes": (
        undeclared(
            lambda x: tf.reduce_sum(x * x, axis=-1),
            inputs=(Input("x", WIDE, ("...", "M")),),
            outputs=(Output("y", WIDE, ("...",)),),
        ),
        'batching="leading_axes"',
    ),
    "shared": (
        undeclared(
            lambda x, w: tf.linalg.matvec(x * x, w),
            inputs=(*MATRIX, Input("w", WIDE, ("M",))),
            outputs=(Output("y", WIDE, ("N",)),),
            examples=TABLE,
        ),
        "batching=\"leading_axis\", shared=('w',)",
    ),
}


@pytest.mark.parametrize(("op", "words"), INDEPENDENT.values(), ids=INDEPENDENT)
def test_independent_rows_that_are_not_declared_are_found(op: Op, words: str) -> None:
    [sentence] = sentences(op)
    assert f"its rows are independent: declare {words}, and requests of this op can share calls" in sentence


def normalised(x):
    mean, variance = tf.nn.moments(x, axes=[0])
    return (x - mean) / tf.sqrt(variance + 1)


DEPENDENT = {
    "a cumulative sum": undeclared(lambda x: tf.cumsum(x, axis=0)),
    "a batch norm": undeclared(normalised),
    "the gradient alone": undeclared(
        custom_gradient(tf.identity, lambda x, dy: dy - tf.reduce_mean(dy, axis=0, keepdims=True))
    ),
    "the number of rows": undeclared(lambda x: x * tf.cast(tf.shape(x)[0], x.dtype)),
    "noise": undeclared(lambda x: x + 1e-9 * tf.random.normal(tf.shape(x), dtype=x.dtype)),
    "the first row": undeclared(lambda x: tf.concat([0 * x[:1], x[1:]], axis=0)),
    **{words: replace(planted.op, batching="none", shared=()) for words, planted in OPS.items()},
}


@pytest.mark.share(3)
@pytest.mark.parametrize("op", DEPENDENT.values(), ids=DEPENDENT)
def test_rows_that_only_seem_independent_get_no_note(op: Op) -> None:
    assert sentences(op) == ["the op does not claim that requests may share a call"]


def test_a_neighbour_that_makes_the_op_raise_is_skipped() -> None:
    def validate(inputs, attrs: Attrs) -> None:
        if not (abs(inputs["x"]) < 100).all():
            raise InvalidInput("x", "x is large", expected="x < 100", got="more")

    document = report(undeclared(tf.nn.softmax, batching="leading_axis", validate=validate), checks=["batching"])
    assert document["verdict"] == "pass"


def test_bits_that_depend_on_neighbours_are_a_note_and_no_failure() -> None:
    """Such as those of XLA's Jacobi sweeps, which end together. A row of this op depends on its place."""

    def last_bits(x: tf.Tensor) -> tf.Tensor:
        is_odd = tf.range(tf.shape(x)[0])[:, None] % 2 == 1
        return x * tf.stop_gradient(tf.where(is_odd, 1 + np.finfo(x.dtype.as_numpy_dtype).eps, tf.ones_like(x)))

    document = report(undeclared(last_bits, batching="leading_axis"), checks=["batching"], modes=("xla",))
    [entry] = entries(document, "batching", "pass")
    assert entry["sentence"].endswith("keep its bits beside other rows in mode xla: the service will not join")


@pytest.mark.parametrize("name", ["safe_norm", "softmax_cross_entropy", "roi_pool"])
def test_rows_of_our_ops_keep_their_bits(name: str) -> None:
    document = report(discover().ops[name], checks=["batching"])
    assert document["verdict"] == "pass"
    assert not any("bits" in entry["sentence"] for entry in document["checks"])
