"""Ops with masks: correct ops pass at every seed, and mistakes that only a mask shows are caught."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ops import Claim, Example, Formula, Input, Op, Output, Surrogate, custom_gradient
from tests.gradcheck.checking import entries, failed, report
from tests.http.plugins.masked import OP
from tests.http.plugins.parted import OP as PARTED

pytestmark = pytest.mark.slow

MASK = Input("mask", ("bool",), differentiable=False)
# The ops below have other values.
MASKED = replace(OP, reference=None)


def kept(x, mask):
    return tf.where(mask, x, tf.zeros_like(x))


def kept_vjp(x, mask, dy):
    return kept(dy, mask), None


def in_rows(batching: str) -> Op:
    """Return an op that sums the squares of the kept numbers, row by row."""
    return replace(
        MASKED,
        function=lambda x, mask: tf.reduce_sum(tf.square(kept(x, mask)), axis=-1),
        inputs=(Input("x", shape=("N", "M")), replace(MASK, shape=("N", "M"))),
        outputs=(Output("y", shape=("N",)),),
        mechanism="symbolic_gradient",
        batching=batching,
        examples=(Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]], "mask": [[True, False], [False, False]]}),),
    )


def as_surrogate(primals, at):
    x, mask = primals
    return (np.where(~mask, 0, x),)


def as_formula(primals, dys):
    dx = np.zeros_like(dys[0])
    dx[primals[1]] = dys[0][primals[1]]
    return dx, None


def claiming(**claim: Any) -> Op:
    """Return the op with a claim in NumPy, which must receive masks as bools."""
    return replace(MASKED, claim=lambda attrs: Claim(**claim))


RIGHT = {
    "masked": MASKED,
    "a bool comes out": PARTED,
    "in rows": in_rows("leading_axis"),
    "in a loop": in_rows("none"),
    "the mask first, and one dtype": replace(
        MASKED,
        function=custom_gradient(lambda mask, x: kept(x, mask), lambda mask, x, dy: (None, kept(dy, mask))),
        inputs=(MASK, Input("x", ("float64",))),
        outputs=(Output("y", ("float64",)),),
    ),
    "a surrogate": claiming(
        first=Surrogate(as_surrogate), second=Surrogate(lambda primals, dys, at: (np.where(~at[1], 0, dys[0]), None))
    ),
    "a formula": claiming(first=Formula(as_formula), second=Formula(lambda primals, dys, ddx: (0 * primals[0], None))),
}


# What the others have is in these: a mask as an input, bools as an output, rows, and both kinds of claims.
OFTEN = ("a bool comes out", "in rows", "a surrogate", "a formula")


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("op", "seed"),
    [
        pytest.param(op, seed, id=f"{name}-{seed}", marks=pytest.mark.thorough if seed or name not in OFTEN else ())
        for seed in range(3)
        for name, op in RIGHT.items()
    ],
)
def test_a_right_op_passes(op: Op, seed: int) -> None:
    # Bools as an output are compared in all modes; the masks of the others are alike in them.
    document = report(op, seed=seed, modes=None if len(op.outputs) > 1 else ("graph",))
    assert failed(document) == [], [entry["sentence"] for entry in document["checks"] if entry["verdict"] == "fail"]
    assert document["verdict"] == "pass"


def reciprocal(x, mask):
    """Return 1/x where the mask is true; elsewhere TensorFlow's own gradient is 0·∞ at 0."""
    return kept(1 / x, mask)


def by_mode(x):
    return tf.abs(x), x > 0 if tf.executing_eagerly() else x < 0


ALL = (Example("all", {"x": [1.5, -2.0, 3.0], "mask": [True, True, True]}),)
WRONG = {
    "the mask forgotten": (
        # The example does not show it; random points do.
        replace(MASKED, function=custom_gradient(kept, lambda x, mask, dy: (dy, None)), examples=ALL),
        "derivative",
        "the numeric derivative of forward",
    ),
    "0·∞ behind the mask": (
        replace(MASKED, function=reciprocal, inputs=(Input("x"), MASK), examples=ALL),
        "finite",
        "dx is nan at x = 0",
    ),
    "other bools in graphs": (replace(PARTED, function=by_mode), "modes", "mode eager"),
}


@pytest.mark.parametrize(("op", "check", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_op_is_caught(op: Op, check: str, words: str) -> None:
    document = report(op, checks=[check])
    assert check in failed(document), document["sentence"]
    assert any(words in entry["sentence"] for entry in entries(document, check)), entries(document, check)


def test_tolerances_do_not_apply_to_bools() -> None:
    op, _, _ = WRONG["other bools in graphs"]
    assert failed(report(op, absolute=2.0, checks=["modes"])) == ["modes"]


def test_an_op_with_only_bools_has_nothing_to_check() -> None:
    opposite = replace(
        PARTED,
        function=tf.logical_not,
        inputs=(replace(MASK, name="x"),),
        outputs=(Output("y", ("bool",), differentiable=False),),
        examples=(Example("two", {"x": [True, False]}),),
    )
    document = report(opposite)
    assert (document["checks"], failed(document)) == ([], [])
    assert "nothing is differentiable" in document["sentence"]
