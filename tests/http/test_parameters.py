"""Parameters: inputs whose values the server has.

Every operation answers as if the request sent the values among its inputs.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from tests.http.native_client import MODES, array, ask, post, problem
from tests.http.plugins.layered import B, W
from tests.http.test_tesseract import result_of, send
from tests.http.test_umbridge import call
from tests.http.test_variants import assert_near

X = [[0.5, -1.0, 0.25], [2.0, 0.25, -0.75]]
DY = [[1.0, 2.0], [0.5, -1.0]]
OWN = {"w": W.tolist(), "b": B.tolist()}
EVERY = ["x", "w", "b"]
OPERATIONS: dict[str, dict[str, Any]] = {
    "forward": {},
    "gradients": {"order": 2, "cotangents": {"y": DY}, "wrt": EVERY},
    "vjp": {"cotangents": {"y": DY}, "outputs": True, "wrt": EVERY},
    "jvp": {"tangents": {"x": X, "b": [1, -1]}},
    "jacobian": {"wrt": EVERY},
    "hvp": {"cotangents": {"y": DY}, "vectors": {"x": X, "w": (W + 1).tolist()}, "wrt": EVERY},
    "hessian": {"cotangents": {"y": DY}, "wrt": ["b", "x"]},
}


@pytest.fixture(scope="module")
def digest(plugged: httpx.Client) -> str:
    return plugged.get("/v1/ops/layered").json()["parameters_digest"]


@pytest.mark.share(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_answer_is_that_with_the_values_among_the_inputs(
    plugged: httpx.Client, digest: str, operation: str, mode: str
) -> None:
    more = {"mode": mode, **OPERATIONS[operation]}
    found = ask(plugged, "layered", operation, inputs={"x": X}, **more)
    assert_near(found, ask(plugged, "layered", operation, inputs={"x": X, **OWN}, **more))
    for _ in range(3):  # from the fast path
        assert ask(plugged, "layered", operation, inputs={"x": X}, **more) == found
    assert ask(plugged, "layered", operation, inputs={"x": X}, parameters=digest, **more) == found


def test_derivatives_are_by_default_those_of_the_inputs(plugged: httpx.Client) -> None:
    for operation, more in OPERATIONS.items():
        found = ask(plugged, "layered", operation, inputs={"x": X}, **{**more, "wrt": ["x"]} if "wrt" in more else more)
        bare = {name: value for name, value in more.items() if name != "wrt"}
        assert ask(plugged, "layered", operation, inputs={"x": X}, **bare) == found
    y = np.tanh(np.array(X) @ W + B)
    slopes = np.array(DY) * (1 - y * y)
    gradients = ask(plugged, "layered", "vjp", inputs={"x": X}, **OPERATIONS["vjp"])["gradients"]
    expected = {"x": slopes @ W.T, "w": np.array(X).T @ slopes, "b": slopes.sum(axis=0)}
    for name, value in expected.items():
        np.testing.assert_allclose(array(gradients[name]), value, rtol=1e-12)


def test_requests_with_parameters_share_calls(plugged: httpx.Client) -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (64, 1, 3)).tolist()
    alone = [ask(plugged, "layered", "vjp", inputs={"x": x}) for x in rows]
    with ThreadPoolExecutor(16) as pool:
        for _ in range(3):
            assert list(pool.map(lambda x: ask(plugged, "layered", "vjp", inputs={"x": x}), rows)) == alone
    known = [each for each in plugged.get("/v1/ops/layered").json()["row_calls"] if each["shapes"] == {"x": [3]}]
    assert any(each["joined"] for each in known), known


def test_points_with_other_parameters_share_no_call(plugged: httpx.Client) -> None:
    rng = np.random.default_rng(1)
    xs, weights = rng.uniform(-1, 1, (8, 1, 3)).tolist(), rng.uniform(-1, 1, (8, 3, 2)).tolist()
    alone = [ask(plugged, "layered", "forward", inputs={"x": x, "w": w}) for x, w in zip(xs, weights, strict=True)]
    together = ask(plugged, "layered", "forward", inputs={"x": xs, "w": weights}, points=True)
    assert (
        np.ravel(together["outputs"]["y"]["data"]).tolist()
        == np.ravel([each["outputs"]["y"]["data"] for each in alone]).tolist()
    )


def test_contract(plugged: httpx.Client, digest: str) -> None:
    contract = plugged.get("/v1/ops/layered").json()
    assert contract["parameters"] == [
        {"name": "w", "dtype": "float64", "shape": [3, 2], "doc": "the weights"},
        {"name": "b", "dtype": "float64", "shape": [2]},
    ]
    assert len(digest) == 64
    assert [slot["name"] for slot in contract["inputs"]] == ["x"]
    derived = plugged.get("/v1/ops/layered.vjp").json()
    assert (derived["parameters"], derived["parameters_digest"]) == (contract["parameters"], digest)
    assert [slot["name"] for slot in derived["inputs"]] == ["x", "dy"]
    assert [slot["name"] for slot in derived["outputs"]] == ["dx"]
    assert "parameters" not in plugged.get("/v1/ops/square").json()


def test_derived_ops_have_the_parameters(plugged: httpx.Client) -> None:
    more = {"cotangents": {"y": DY}, "vectors": {"x": X}, "wrt": EVERY}
    hvp = ask(plugged, "layered", "hvp", inputs={"x": X}, **more)["products"]
    inputs = {"x": X, "dy": DY}
    found = ask(plugged, "layered.vjp", "vjp", inputs=inputs, cotangents={"dx": X}, wrt=EVERY)
    assert_near(found["gradients"], hvp)
    again = ask(plugged, "layered.vjp.vjp", "forward", inputs={**inputs, "ddx": X})["outputs"]
    np.testing.assert_allclose(array(again["dx"]), array(hvp["x"]), rtol=1e-12)


def test_a_graph_uses_the_values_of_the_page(plugged: httpx.Client) -> None:
    nodes = [
        {"name": "h", "op": "layered", "inputs": {"x": "x"}},
        {"name": "g", "op": "layered.vjp", "inputs": {"x": "x", "dy": "h"}},
    ]
    graph = {"inputs": ["x"], "nodes": nodes, "outputs": {"y": "g"}}
    name = plugged.post("/v1/graphs", json=graph).json()["name"]
    h = ask(plugged, "layered", "forward", inputs={"x": X})["outputs"]["y"]["data"]
    expected = ask(plugged, "layered", "vjp", inputs={"x": X}, cotangents={"y": h})["gradients"]["x"]
    for mode in MODES:
        found = ask(plugged, name, "forward", inputs={"x": X}, mode=mode)["outputs"]["y"]
        np.testing.assert_allclose(array(found), array(expected), rtol=1e-12)
    assert "parameters" not in plugged.get(f"/v1/ops/{name}").json()


def test_what_is_no_digest_of_parameters(plugged: httpx.Client, digest: str) -> None:
    for operation, more in {"forward": {}, "verify": {"gradients": {"x": X}}, "numeric": {}, "linearize": {}}.items():
        other = post(plugged, "layered", operation, inputs={"x": X}, parameters="0" * 64, **more)
        assert digest in problem(other, 404)["detail"]
    [error] = problem(post(plugged, "square", "forward", inputs={"x": X}, parameters=digest), 422)["errors"]
    assert (error["loc"], error["message"]) == (["parameters"], "op square has no parameters")
    [error] = problem(post(plugged, "layered", "vjp", inputs={"x": X}, wrt=["v"]), 422)["errors"]
    assert error["loc"] == ["wrt", 0]
    [error] = problem(post(plugged, "layered", "forward", inputs={"x": X, "b": [1]}), 422)["errors"]
    assert error["loc"] == ["inputs", "b"]


def test_a_linearization_has_gradients_of_parameters(plugged: httpx.Client) -> None:
    made = ask(plugged, "layered", "linearize", inputs={"x": X}, wrt=EVERY)
    assert_near(made["outputs"], ask(plugged, "layered", "forward", inputs={"x": X})["outputs"])


def test_verify_and_numeric(plugged: httpx.Client) -> None:
    report = ask(plugged, "layered", "verify", inputs={"x": X}, gradients={"x": [[0.0] * 3] * 2})
    assert report["verdict"] == "fail"
    found = ask(plugged, "layered", "numeric", inputs={"x": X}, wrt=["b"])["derivatives"]["b"]
    expected = ask(plugged, "layered", "vjp", inputs={"x": X}, wrt=["b"])["gradients"]["b"]
    np.testing.assert_allclose(found["derivative"], array(expected), rtol=1e-6)


def test_the_other_protocols_have_the_inputs_alone(plugged: httpx.Client) -> None:
    y = array(ask(plugged, "layered", "forward", inputs={"x": X})["outputs"]["y"])
    config = {"shape": {"x": [2, 3]}}
    found = call(plugged, "Evaluate", name="layered", input=[np.ravel(X).tolist()], config=config)
    np.testing.assert_allclose(found["output"][0], y.ravel(), rtol=1e-12)
    lists = {"jac_inputs": ["x"], "jac_outputs": ["y"]}
    jacobian = result_of(plugged, "layered", "jacobian", {"inputs": {"x": X}, **lists})
    assert np.shape(jacobian["y"]["x"]) == (2, 2, 2, 3)
    assert send(plugged, "layered", "apply", {"inputs": {"x": X}}).status_code == 200
    tensor = {"name": "x", "datatype": "FP64", "shape": [2, 3], "data": X}
    inferred = plugged.post("/v2/models/layered/infer", json={"inputs": [tensor]}).json()
    np.testing.assert_allclose(np.reshape(inferred["outputs"][0]["data"], (2, 2)), y, rtol=1e-12)


def test_the_checks_move_the_parameters(plugged: httpx.Client) -> None:
    report = ask(plugged, "layered", "check", checks=["derivative", "value", "second", "modes"])
    assert report["verdict"] == "pass", report["sentence"]
    places = {
        place["input"] for entry in report["checks"] for place in entry["places"] if entry["check"] == "derivative"
    }
    assert places >= {"x", "w", "b"}
