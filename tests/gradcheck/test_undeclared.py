"""Integers without a domain: an op that rejects those that are drawn is not blamed, and its author is told the cure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ops import Array, Example, Input, InvalidInput, Op, Output, Tensor, custom_gradient
from tests.gradcheck.checking import entries, failed, report

pytestmark = pytest.mark.slow

WIDE = ("float64",)


def chosen(x: Tensor, index: Tensor) -> Tensor:
    """y = x² at the index of each row."""
    return tf.gather(x * x, index, batch_dims=1)


def chosen_vjp(x: Tensor, index: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    """Twice too large."""
    return 4 * x * tf.one_hot(index, tf.shape(x)[1], dtype=x.dtype) * dy[:, None], None


def from_0(inputs: Mapping[str, Array], attrs: Any) -> None:
    if (inputs["index"] < 0).any() or (inputs["index"] >= inputs["x"].shape[1]).any():
        raise InvalidInput("index", "no column", expected="a column", got="another number")


def indexing(function=chosen, highest: int = 2, **changes: Any) -> Op:
    """Return an op with an index that has no domain; its example has an index up to ``highest``."""
    width = highest + 1
    rows = [[1.0 + i + j / 7 for j in range(width)] for i in range(2)]
    fields: dict[str, Any] = {
        "name": "indexing",
        "summary": "a test",
        "doc": None,
        "function": function,
        "reference": lambda x, index: np.take_along_axis(x * x, index[:, None], axis=1)[:, 0],
        "inputs": (Input("x", WIDE, ("N", "M")), Input("index", ("int32",), ("N",), differentiable=False)),
        "outputs": (Output("y", WIDE, ("N",)),),
        "mechanism": "symbolic_gradient",
        "source": "a test",
        "examples": (Example("rows", {"x": rows, "index": [0, highest]}),),
        "modes": ("graph", "eager", "v1"),
    }
    return Op(**(fields | changes))


@pytest.mark.parametrize(
    ("validate", "highest"),
    [
        pytest.param(from_0, 2, id="validate-2"),
        pytest.param(None, 0, id="a kernel-0"),
        pytest.param(from_0, 0, id="validate-0", marks=pytest.mark.thorough),
        pytest.param(None, 2, id="a kernel-2", marks=pytest.mark.thorough),
        pytest.param(from_0, 9, id="validate-9", marks=pytest.mark.thorough),
        pytest.param(None, 9, id="a kernel-9", marks=pytest.mark.thorough),
    ],
)
def test_the_author_is_told_to_declare_a_domain(validate: Any, highest: int) -> None:
    document = report(indexing(highest=highest, validate=validate))
    assert failed(document) == [], [entry["sentence"] for entry in document["checks"] if entry["verdict"] == "fail"]
    assert document["verdict"] == "pass"
    [told] = entries(document, "contract", "inconclusive")
    assert told["input"] == "index"
    assert "index has no domain" in told["sentence"]
    assert f"checked with integers from 0 to {highest if highest < 3 else 2}" in told["sentence"]
    assert 'declare Input("index", ..., domain=(first, last + 1)), or a sample' in told["sentence"]
    assert entries(document, "derivative", "pass")


@pytest.mark.thorough
def test_a_wrong_gradient_is_found_all_the_same() -> None:
    document = report(indexing(custom_gradient(chosen, chosen_vjp), validate=from_0))
    assert "derivative" in failed(document)
    assert "contract" not in failed(document)


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "declared",
    [
        lambda op: replace(op, inputs=(op.inputs[0], replace(op.inputs[1], domain=(0, 3)))),
        lambda op: replace(
            op,
            sample=lambda rng, dtype, attrs: {"x": rng.uniform(1, 2, (2, 3)).astype(dtype), "index": np.array([0, 2])},
        ),
    ],
    ids=["a domain", "a sample"],
)
def test_nothing_is_told_where_the_author_declares(declared: Any) -> None:
    document = report(declared(indexing(validate=from_0)))
    assert failed(document) == []
    assert not entries(document, "contract", "inconclusive")


@pytest.mark.thorough
def test_nothing_is_told_if_the_op_accepts_any_integer() -> None:
    any_integer = indexing(
        lambda x, index: tf.reduce_sum(x * x, -1) * tf.cast(index, x.dtype),
        reference=lambda x, index: (x * x).sum(-1) * index,
    )
    document = report(any_integer)
    assert failed(document) == []
    assert not entries(document, "contract", "inconclusive")


def test_a_wrong_domain_is_still_a_fault() -> None:
    op = indexing(validate=from_0)
    document = report(replace(op, inputs=(op.inputs[0], replace(op.inputs[1], domain=(0, 9)))))
    assert "contract" in failed(document)


def test_an_op_that_fails_everywhere_is_to_blame() -> None:
    def broken(x: Tensor, index: Tensor) -> Tensor:
        raise ValueError("never works")

    document = report(indexing(broken, reference=None))
    assert failed(document) == ["contract"]
    assert not entries(document, "contract", "inconclusive")


def test_an_example_is_enough_where_no_domain_is_found() -> None:
    """The indices must be 0, 5 in this order."""

    def two(inputs: Mapping[str, Array], attrs: Any) -> None:
        if inputs["index"].tolist() != [0, 5]:
            raise InvalidInput("index", "expected 0 and 5", expected="[0, 5]", got="others")

    document = report(indexing(highest=5, validate=two))
    assert failed(document) == []
    [told] = entries(document, "contract", "inconclusive")
    assert "checked at an example" in told["sentence"]
    assert entries(document, "derivative", "pass")
