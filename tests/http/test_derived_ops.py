"""Derived ops over HTTP: their contracts, every operation and format, the three protocols, and the errors."""

import httpx
import numpy as np
import pytest

from tests.http.native_client import MODES, array, ask, data, post, problem
from tests.http.openinference_client import expect_error, in_json, infer_json
from tests.http.test_binary import binary, decode, encode

X, DY, DDX = [-1.5, 0.25, 2.0], [0.5, 2.0, -1.25], [1.0, 3.0, 0.5]
SECOND = {"x": X, "dy": DY, "ddx": DDX}
S = 1 / (1 + np.exp(-np.array(X)))
# The derivatives of log1pexp.
FIRST_ORDER, SECOND_ORDER, THIRD_ORDER = S, S * (1 - S), S * (1 - S) * (1 - 2 * S)


def test_the_contract_says_what_a_derived_op_is(client: httpx.Client) -> None:
    registered = client.get("/v1/ops/log1pexp").json()
    assert registered["derivations"] == ["vjp", "jvp"]
    assert "of" not in registered
    found = client.get("/v1/ops/log1pexp.vjp.vjp").json()
    assert (found["name"], found["of"], found["derivation"]) == ("log1pexp.vjp.vjp", "log1pexp.vjp", ["vjp", "vjp"])
    assert [slot["name"] for slot in found["inputs"]] == ["x", "dy", "ddx"]
    assert [slot["name"] for slot in found["outputs"]] == ["dx", "ddy"]
    assert found["batching"] == "elementwise"
    assert found["attrs"] == registered["attrs"]
    for example in found["examples"]:
        assert ask(client, "log1pexp.vjp.vjp", "forward", inputs=example["inputs"], attrs=example["attrs"])
    assert "log1pexp.vjp" not in [op["name"] for op in client.get("/v1/ops").json()["ops"]]
    assert client.get("/v1/ops/clip_gradient").json()["derivations"] == ["vjp"]
    assert client.get("/v1/ops/square.vjp.vjp.vjp.vjp").json()["derivations"] == []


@pytest.mark.parametrize("mode", MODES)
def test_every_operation_on_a_derived_op(client: httpx.Client, mode: str) -> None:
    at = {"inputs": {"x": X, "dy": DY}, "dtype": "float64", "mode": mode}
    x, dy, v = map(np.array, (X, DY, DDX))
    del x
    forward = ask(client, "log1pexp.vjp", "forward", **at)
    assert np.allclose(data(forward)["outputs"]["dx"], FIRST_ORDER * dy, rtol=1e-12)
    vjp = data(ask(client, "log1pexp.vjp", "vjp", **at, cotangents={"dx": DDX}))["gradients"]
    assert np.allclose(vjp["x"], SECOND_ORDER * dy * v, rtol=1e-12)
    assert np.allclose(vjp["dy"], FIRST_ORDER * v, rtol=1e-12)
    jvp = data(ask(client, "log1pexp.vjp", "jvp", **at, tangents={"x": DDX}))["tangents"]
    assert np.allclose(jvp["dx"], SECOND_ORDER * dy * v, rtol=1e-12)
    hvp = data(ask(client, "log1pexp.vjp", "hvp", **at, vectors={"x": DDX}))["products"]
    assert np.allclose(hvp["x"], THIRD_ORDER * dy * v, rtol=1e-12)
    assert np.allclose(hvp["dy"], SECOND_ORDER * v, rtol=1e-12)
    jacobian = data(ask(client, "log1pexp.vjp", "jacobian", **at))["jacobian"]["dx"]
    assert np.allclose(jacobian["x"], np.diag(SECOND_ORDER * dy), rtol=1e-12)
    hessian = data(ask(client, "log1pexp.vjp", "hessian", **at))["hessian"]
    assert np.allclose(hessian["x"]["dy"], np.diag(SECOND_ORDER), rtol=1e-12)
    orders = data(ask(client, "log1pexp.vjp", "gradients", **at, order=2, wrt=["x"]))["gradients"]
    assert np.allclose(orders[1]["x"], THIRD_ORDER * dy, rtol=1e-12)


def test_third_order_with_cotangents_of_its_own(client: httpx.Client) -> None:
    found = ask(client, "log1pexp.vjp.vjp", "vjp", inputs=SECOND, cotangents={"dx": DDX}, dtype="float64")
    numbers = data(found)["gradients"]
    dy, v = np.array(DY), np.array(DDX)
    assert np.allclose(numbers["x"], THIRD_ORDER * dy * v * v, rtol=1e-12)
    assert np.allclose(numbers["dy"], SECOND_ORDER * v * v, rtol=1e-12)
    assert np.allclose(numbers["ddx"], SECOND_ORDER * dy * v, rtol=1e-12)


def test_binary_and_json_give_the_same_bits(client: httpx.Client) -> None:
    body = encode({f"inputs/{name}": np.array(value) for name, value in SECOND.items()}, dtype="float64")
    response = binary(client, "log1pexp.vjp.vjp/forward", body)
    assert response.status_code == 200, response.text
    found, _ = decode(response.content)
    for name, value in ask(client, "log1pexp.vjp.vjp", "forward", inputs=SECOND, dtype="float64")["outputs"].items():
        assert np.array_equal(found[f"outputs/{name}"], array(value))


def test_many_directions_at_once(client: httpx.Client) -> None:
    at = {"inputs": {"x": X, "dy": DY}, "dtype": "float64"}
    rows = data(ask(client, "log1pexp.vjp", "vjp", **at, cotangents={"dx": [DDX, DY]}, batched=True))["gradients"]
    for i, row in enumerate((DDX, DY)):
        alone = data(ask(client, "log1pexp.vjp", "vjp", **at, cotangents={"dx": row}))["gradients"]
        assert np.allclose(rows["x"][i], alone["x"], rtol=1e-15)
        assert np.allclose(rows["dy"][i], alone["dy"], rtol=1e-15)


def test_errors_say_why(client: httpx.Client) -> None:
    deep = problem(post(client, "square.vjp.vjp.vjp.vjp.vjp", "forward", inputs={}), 404)
    assert "at most 4 derivations" in deep["detail"]
    assert "unknown derivation 'hvp'" in problem(post(client, "square.hvp", "forward", inputs={}), 404)["detail"]
    assert "unknown op 'squar.vjp'" in problem(post(client, "squar.vjp", "forward", inputs={}), 404)["detail"]
    assert "unknown operation" in problem(post(client, "square.vjp", "hpv", inputs={}), 404)["detail"]
    assert problem(client.get("/v1/ops/square.vjp/forward"), 405)
    missing = problem(post(client, "square.vjp", "forward", inputs={"x": [1.0]}), 422)
    assert "missing input dy" in missing["detail"]
    shape = problem(post(client, "square.vjp", "forward", inputs={"x": [1.0], "dy": [1.0, 2.0]}), 422)
    assert shape["errors"][0]["loc"] == ["inputs", "dy"]
    nonlinear = problem(post(client, "clip_gradient.jvp", "forward", inputs={"x": [1.0], "tx": [1.0]}), 422)
    assert "not linear in the cotangent" in nonlinear["detail"]
    assert ask(client, "clip_gradient.jvp", "forward", inputs={"x": [1.0], "tx": [1.0]}, attrs={"by": "none"})


def test_umbridge_differentiates_a_derived_op(client: httpx.Client) -> None:
    config = {"shape": [3]}
    at = {"name": "log1pexp.vjp", "input": [X, DY], "config": config}
    assert np.allclose(client.post("/Evaluate", json=at).json()["output"][0], FIRST_ORDER * DY, rtol=1e-12)
    found = client.post("/Gradient", json={**at, "outWrt": 0, "inWrt": 0, "sens": DDX}).json()
    assert np.allclose(found["output"], SECOND_ORDER * DY * DDX, rtol=1e-12)
    listed = client.get("/Info").json()["models"]
    assert "log1pexp.vjp" in listed
    assert "clip_gradient.jvp" not in listed
    second = {"name": "log1pexp.vjp.vjp", "input": [X, DY, DDX], "config": config}
    assert client.post("/Evaluate", json=second).status_code == 200
    assert client.post("/ModelInfo", json={"name": "log1pexp.vjp"}).json()["support"]["Gradient"]


def test_tesseract_serves_a_derived_op(client: httpx.Client) -> None:
    assert "dy" in str(client.get("/tesseract/log1pexp.vjp/openapi.json").json())
    body = {"inputs": {"x": X, "dy": DY}}
    found = client.post("/tesseract/log1pexp.vjp/apply", json=body, headers={"accept": "application/json"})
    assert found.status_code == 200, found.text
    unknown = client.post("/tesseract/log1pexp.vjp/applied", json=body)
    assert unknown.status_code == 404
    assert "unknown endpoint" in unknown.json()["detail"]


def test_the_open_inference_protocol_serves_a_derived_op(client: httpx.Client) -> None:
    at = {name: np.array(value) for name, value in SECOND.items()}
    found = infer_json(client, "log1pexp.vjp.vjp", at)
    native = ask(client, "log1pexp.vjp.vjp", "forward", inputs=SECOND, dtype="float64")["outputs"]
    assert np.array_equal(found["dx"], array(native["dx"]))
    assert np.array_equal(found["ddy"], array(native["ddy"]))
    third = infer_json(client, "log1pexp.vjp.vjp.vjp", {**at, "dddx": np.array(DDX), "dddy": np.zeros(3)})
    assert set(third) == {"dx", "ddy", "ddddx"}
    wrong = in_json({**at, "dddx": np.zeros(2), "dddy": np.zeros(3)})
    refused = client.post("/v2/models/log1pexp.vjp.vjp.vjp/infer", json={"inputs": wrong})
    expect_error(refused, 400, "inputs.dddx", "shape mismatch")
    names = [tensor["name"] for tensor in client.get("/v2/models/log1pexp.vjp.hvp").json()["inputs"]]
    assert names == ["x", "dy", "vx", "vdy", "ddx"]


def test_the_work_counts_for_the_registered_op(client: httpx.Client) -> None:
    ask(client, "square.vjp.jvp", "forward", inputs={"x": X, "dy": DY, "tx": DDX, "tdy": DDX})
    assert "square.vjp" not in client.get("/metrics").text
