"""POST /v1/ops/{op}/numeric: numeric derivatives with error bars that contain the right ones, and their limits."""

import math
from typing import Any

import httpx
import numpy as np
import pytest

from tests.conftest import Serve
from tests.http.native_client import ask, fault, post, problem

X = [-2.0, -0.5, 0.0, 0.25, 3.0]


def numeric(client: httpx.Client, op: str, **body: Any) -> dict[str, Any]:
    return ask(client, op, "numeric", **body)


def arrays(found: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(found["derivative"], float), np.array(found["error_bar"], float)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("order", [1, 2])
def test_the_error_bars_contain_the_right_derivatives(client: httpx.Client, order: int, dtype: str) -> None:
    found = numeric(client, "log1pexp", inputs={"x": X}, order=order, dtype=dtype)
    sigmoid = 1 / (1 + np.exp(-np.array(X)))
    right = sigmoid if order == 1 else sigmoid * (1 - sigmoid)
    value, bar = arrays(found["derivatives"]["x"])
    assert (np.abs(value - right) <= bar).all()
    assert (bar < (1e-11 if dtype == "float64" else 1e-4)).all()
    assert found["derivatives"]["x"]["status"] == ["ok"] * 5
    assert (found["of"], found["dtype"], found["computed_in"]) == (["forward", "vjp"][order - 1], dtype, "float64")


def test_a_declared_second_order_is_that_of_the_claim_and_not_of_the_vjp(client: httpx.Client) -> None:
    own, claimed = (numeric(client, "log1pexp2", inputs={"x": X}, order=2, claim=claim) for claim in (False, True))
    assert (own["of"], claimed["of"]) == ("vjp", "surrogate")
    (value, bar), (declared, its_bar) = (arrays(each["derivatives"]["x"]) for each in (own, claimed))
    assert (np.abs(declared - (1 - np.exp(X))) <= its_bar).all()
    sigmoid = 1 / (1 + np.exp(-np.array(X)))
    assert (np.abs(value - sigmoid * (1 - sigmoid)) <= bar).all()


def test_a_formula_is_itself_the_derivative(client: httpx.Client) -> None:
    body = {"inputs": {"x": [1.0, 2.0]}, "cotangents": {"y": [3.0, 4.0]}, "attrs": {"by": "value"}}
    found = numeric(client, "clip_gradient", claim=True, **body)
    value, bar = arrays(found["derivatives"]["x"])
    assert found["of"] == "formula"
    assert (np.abs(value - 0.5) <= bar).all()
    along = numeric(client, "clip_gradient", claim=True, tangents={"x": [1, 10]}, **body)["along"]
    assert abs(along["derivative"] - 5.5) <= along["error_bar"]


def test_what_a_derived_op_may_lack_is_named(client: httpx.Client, plugged: httpx.Client) -> None:
    body = {"inputs": {"x": [1.0, 2.0], "dy": [3.0, 5.0]}}
    assert fault(post(client, "log1pexp2.vjp", "numeric", **body, claim=True))["loc"] == ["claim"]
    inputs = {"x": [1.0, 2.0], "gauge": [[1.0, 2.0, 3.0]], "dy": [3.0, 5.0]}
    assert "dgauge" in fault(post(plugged, "offset.vjp", "numeric", inputs=inputs))["message"]
    assert "no differentiable output" in fault(post(plugged, "sleepy", "numeric", inputs={"x": 0.0}))["message"]


def test_kinks_and_jumps_have_no_derivative(client: httpx.Client) -> None:
    found = numeric(client, "sign", inputs={"x": [0.0, 2.0]})["derivatives"]["x"]
    assert found == {"derivative": ["NaN", 0.0], "error_bar": ["Infinity", found["error_bar"][1]]} | {
        "status": ["jump", "ok"]
    }
    assert numeric(client, "relu", inputs={"x": 0.0})["derivatives"]["x"]["status"] == "kink"


def test_the_derivative_along_tangents_is_one_number(client: httpx.Client) -> None:
    a, v = np.array([[2.0, 1.0], [1.0, 5.0]]), np.array([[1.0, 0.5], [0.5, -2.0]])
    body: dict[str, Any] = {"inputs": {"a": a.tolist()}, "dtype": "float64"}
    slope = ask(client, "self_adjoint_eig", "vjp", **body)["gradients"]["a"]["data"]
    product = ask(client, "self_adjoint_eig", "hvp", vectors={"a": v.tolist()}, **body)["products"]["a"]["data"]
    for order, analytic in ((1, slope), (2, product)):
        found = numeric(client, "self_adjoint_eig", tangents={"a": v.tolist()}, order=order, **body)
        assert "derivatives" not in found
        along = found["along"]
        assert abs(along["derivative"] - np.sum(np.array(analytic) * v)) <= along["error_bar"] < 1e-8, order


def test_what_is_not_differentiable_is_null(client: httpx.Client) -> None:
    found = numeric(client, "softmax_cross_entropy", inputs={"logits": [[1.0, 2.0, 4.0]], "labels": [2]})
    assert found["derivatives"]["labels"] is None
    value, bar = arrays(found["derivatives"]["logits"])
    right = np.exp([1, 2, 4]) / np.exp([1, 2, 4]).sum() - [0, 0, 1]
    assert (np.abs(value - right) <= bar).all()


def test_a_derived_op_has_numeric_derivatives(client: httpx.Client) -> None:
    found = numeric(client, "square.vjp", inputs={"x": [1.0, 2.0], "dy": [3.0, 5.0]}, dtype="float64")["derivatives"]
    for name, right in (("x", [6.0, 10.0]), ("dy", [2.0, 4.0])):
        value, bar = arrays(found[name])
        assert (np.abs(value - right) <= bar).all()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("op", ["square", "clip_gradient", "safe_norm", "multiply", "sum"])
def test_empty_inputs_have_empty_derivatives(client: httpx.Client, op: str, order: int) -> None:
    names = [slot["name"] for slot in client.get(f"/v1/ops/{op}").json()["inputs"]]
    empty: dict[str, Any] = {name: [] for name in names}
    found = numeric(client, op, inputs=empty, order=order)
    nothing: dict[str, Any] = {"derivative": [], "error_bar": [], "status": []}
    assert found["derivatives"] == dict.fromkeys(names, nothing)
    along = numeric(client, op, inputs=empty, order=order, tangents=empty)["along"]
    assert (along["derivative"], along["status"]) == (0.0, "ok")


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"order": 3}, ["order"]),
        ({"cotangents": {"y": [1, 2, 3]}}, ["cotangents", "y"]),
        ({"tangents": {"x": [1, 2, 3]}}, ["tangents", "x"]),
        ({"tangents": {"z": [1]}}, ["tangents", "z"]),
        ({"wrt": ["z"]}, ["wrt", 0]),
        ({"dtype": "int32"}, ["wrt"]),
        ({"claim": 1}, ["claim"]),
        ({"encoding": "flat"}, ["encoding"]),
    ],
)
def test_a_wrong_request_is_refused(client: httpx.Client, body: dict[str, Any], loc: list[str | int]) -> None:
    assert fault(post(client, "square", "numeric", **{"inputs": {"x": [1, 2]}, **body}))["loc"] == loc


@pytest.mark.slow
def test_it_takes_the_place_of_a_check(serve: Serve) -> None:
    with serve(CHECKS="0").client() as client:
        problem(post(client, "square", "numeric", inputs={"x": [1]}), 403)


def test_too_many_numbers_are_refused_before_any_work(client: httpx.Client) -> None:
    body = {"inputs": {"x": [[float(i) for i in range(1, 1025)]]}}
    entry = fault(post(client, "safe_norm", "numeric", **body))
    assert entry["loc"] == ["inputs"]
    assert "along tangents" in entry["message"]
    assert math.isfinite(numeric(client, "safe_norm", tangents=body["inputs"], **body)["along"]["derivative"])
