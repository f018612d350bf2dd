"""Uncertainties and digits of answers, in the client and on the command line."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pullback

X = np.array([1.0, 40.0], np.float32)


@pytest.fixture(scope="module")
def client(service: Any) -> Iterator[pullback.Client]:
    with pullback.Client(service.url) as one:
        yield one


@pytest.mark.parametrize("operation", ["forward", "vjp", "jacobian", "gradients"])
def test_each_array_has_its_uncertainty_and_digits(client: pullback.Client, operation: str) -> None:
    """The Jacobian comes as safetensors, the others as JSON."""
    order = {"order": 2} if operation == "gradients" else {}
    op = client.op("log1pexp2")
    found = getattr(op, operation)(X, **order, digits=True)
    assert not getattr(op, operation)(X, **order).uncertainty
    assert found.digits.keys() == found.uncertainty.keys()
    if operation == "gradients":
        wide = op.gradients(X.astype(np.float64), order=2)
        for level, true in enumerate(wide.gradients):
            off = np.abs(found.gradients[level]["x"].astype(np.float64) - true["x"])
            assert (off <= found.uncertainty["gradients"][level]["x"]).all()
            assert (found.digits["gradients"][level]["x"] > 6).all()
    elif operation == "jacobian":
        assert found.uncertainty["jacobian"]["y"]["x"].shape == (2, 2)
        assert found.digits["jacobian"]["y"]["x"][0, 1] == pytest.approx(6.92, abs=0.01)  # an exact 0


def test_a_number_that_is_not_finite_has_no_digits(client: pullback.Client) -> None:
    found = client.op("log1pexp2").gradients(np.array([100.0], np.float32), order=2, digits=True)
    assert found.digits["gradients"][1]["x"].tolist() == [0]
    assert "uncertainty.gradients[1].x" in repr(found)


def test_what_is_absent_or_an_integer_has_none(client: pullback.Client) -> None:
    op = client.op("softmax_cross_entropy")
    found = op.vjp({"logits": np.zeros((1, 3), np.float32), "labels": np.array([1], np.int32)}, digits=True)
    assert found.uncertainty["gradients"]["labels"] is None
    assert found.digits["gradients"]["labels"] is None


def test_call_prints_them(service: Any, run: Any) -> None:
    result = run("call", "square", "vjp", "x=1.1,3", "--digits", "--json", url=service.url)
    document = json.loads(result.out)
    assert list(document) == ["gradients.x", "uncertainty.gradients.x"]
    assert "uncertainty" not in run("call", "square", "vjp", "x=1.1,3", url=service.url).out
