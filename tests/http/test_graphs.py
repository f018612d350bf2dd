"""Graphs over HTTP: posted, evaluated, refused, and gone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import pullback
from tests.conftest import Serve
from tests.http.native_client import MODES, ask, data

LOSS: Mapping[str, Any] = {
    "inputs": ["a", "x"],
    "nodes": [
        {"name": "ax", "op": "matvec", "inputs": {"a": "a", "x": "x"}},
        {"name": "norm", "op": "safe_norm", "inputs": {"x": "ax"}},
        {"name": "loss", "op": "log1pexp", "inputs": {"x": "norm"}},
    ],
    "outputs": {"y": "loss"},
}
A, X, V = [[1.0, 2.0], [0.5, -1.0]], [0.25, 1.0], [1.0, -2.0]
MULTIPLY = {"name": "p", "op": "multiply", "inputs": {"a": "x", "b": "x"}}


def of_one(*nodes: Mapping[str, Any], output: str = "p", **more: Any) -> dict[str, Any]:
    """Return a document with the input x."""
    return {"inputs": ["x"], "nodes": list(nodes), "outputs": {"y": output}, **more}


@pytest.fixture(scope="module")
def loss(client: httpx.Client) -> str:
    """The name of the graph of log(1 + exp |a x|)."""
    response = client.post("/v1/graphs", json=LOSS)
    assert response.status_code in (200, 201), response.text
    return response.json()["name"]


def test_a_posted_graph_has_a_name_and_a_contract(client: httpx.Client, loss: str) -> None:
    again = client.post("/v1/graphs", json={**LOSS, "inputs": [{"name": "a"}, "x"]})
    assert again.status_code == 200
    assert again.headers["location"] == f"/v1/ops/{loss}"
    assert again.json()["name"] == loss
    contract = client.get(f"/v1/ops/{loss}").json()
    assert [(slot["name"], slot["shape"]) for slot in contract["inputs"]] == [("a", ["M", "N"]), ("x", ["...", "N"])]
    assert [(slot["name"], slot["shape"]) for slot in contract["outputs"]] == [("y", ["..."])]
    assert contract["claim"] == {"first": "derivative", "second": "derivative", "linear": True}
    assert contract["derivations"] == ["vjp", "jvp"]
    assert contract["nodes"] == ["matvec", "safe_norm", "log1pexp"]
    assert client.get(f"/v1/graphs/{loss}").json()["nodes"] == LOSS["nodes"]
    assert loss not in [op["name"] for op in client.get("/v1/ops").json()["ops"]]


@pytest.mark.parametrize("mode", MODES)
def test_value_gradient_and_hessian_product_are_those_of_the_formula(
    client: httpx.Client, loss: str, mode: str
) -> None:
    a, x, v = map(np.array, (A, X, V))
    at = {"inputs": {"a": A, "x": X}, "dtype": "float64", "mode": mode}
    r = float(np.linalg.norm(a @ x))
    u, s = a @ x / r, 1 / (1 + np.exp(-r))
    found = data(ask(client, loss, "gradients", **at, wrt=["x"]))
    assert np.allclose(found["outputs"]["y"], np.log1p(np.exp(r)), rtol=1e-12)
    assert np.allclose(found["gradients"][0]["x"], s * a.T @ u, rtol=1e-12)
    curved = s * (1 - s) * np.outer(u, u) + s / r * (np.eye(2) - np.outer(u, u))
    product = data(ask(client, loss, "hvp", **at, wrt=["x"], vectors={"x": V}))["products"]["x"]
    assert np.allclose(product, a.T @ curved @ a @ v, rtol=1e-12)


def test_the_other_operations_and_derived_ops_work_on_a_graph(client: httpx.Client, loss: str) -> None:
    at: dict[str, Any] = {"inputs": {"a": A, "x": X}, "dtype": "float64"}
    jacobian = np.array(data(ask(client, loss, "jacobian", **at, wrt=["x"]))["jacobian"]["y"]["x"])
    tangent = data(ask(client, loss, "jvp", **at, tangents={"x": V}))["tangents"]["y"]
    assert np.allclose(tangent, jacobian @ V, rtol=1e-12)
    rows = data(ask(client, loss, "vjp", **at, cotangents={"y": [1.0, 2.0]}, batched=True))["gradients"]["x"]
    assert np.allclose(rows, [jacobian, 2 * jacobian], rtol=1e-12)
    derived = ask(client, f"{loss}.vjp", "forward", inputs={**at["inputs"], "dy": 2.0}, dtype="float64")
    assert np.allclose(data(derived)["outputs"]["dx"], 2 * jacobian, rtol=1e-12)


def test_attributes_of_nodes_are_those_of_the_graph(client: httpx.Client) -> None:
    nodes = [
        {"name": "s", "op": "scale_gradient", "inputs": {"x": "x"}, "attrs": {"scale": {"attr": "strength"}}},
        {"name": "p", "op": "multiply", "inputs": {"a": "s", "b": {"constant": 3}}},
    ]
    name = client.post("/v1/graphs", json=of_one(*nodes, attrs={"strength": 0.5})).json()["name"]
    assert client.get(f"/v1/ops/{name}").json()["batching"] == "elementwise"
    for attrs, slope in (({}, 1.5), ({"strength": 2.0}, 6.0)):
        found = data(ask(client, name, "vjp", inputs={"x": [[1.0, 2.0]]}, attrs=attrs))["gradients"]["x"]
        assert np.array_equal(found, [[slope, slope]])


def test_outputs_keep_their_order_in_every_protocol(serve: Serve, tmp_path: Path) -> None:
    outputs = {"value": "p", "slope": "s.dx", "half": "h"}
    nodes = [
        {"name": "p", "op": "square", "inputs": {"x": "x"}},
        {"name": "s", "op": "square.vjp", "inputs": {"x": "x", "dy": {"constant": 1.0}}},
        {"name": "h", "op": "multiply", "inputs": {"a": "x", "b": {"constant": 0.5}}},
    ]
    document = {**of_one(*nodes), "outputs": outputs}
    (tmp_path / "curve.graph.json").write_text(json.dumps(document))
    folder, vector = str(tmp_path / "posted"), {"input": [[3.0]], "config": {"shape": [1]}}
    with serve(DATA=folder, OPS_PATH=str(tmp_path)).client() as client:
        posted = client.post("/v1/graphs", json=document).json()
        name = posted["name"]
        assert [slot["name"] for slot in posted["outputs"]] == list(outputs)
        assert client.put(f"/v1/graphs/{name}", json=document).status_code == 200
    # Another process reads the document from the folder.
    with serve(DATA=folder, OPS_PATH=str(tmp_path)).client() as client:
        assert list(client.get(f"/v1/graphs/{name}").json()["outputs"]) == list(outputs)
        for each in (name, "curve"):
            assert list(ask(client, each, "forward", inputs={"x": [3.0]})["outputs"]) == list(outputs)
            assert [slot["name"] for slot in client.get(f"/v1/ops/{each}.vjp").json()["inputs"]] == [
                "x",
                "dvalue",
                "dslope",
                "dhalf",
            ]
            assert client.post("/Evaluate", json={"name": each, **vector}).json()["output"] == [[9.0], [6.0], [1.5]]
            slopes = [
                client.post("/Gradient", json={"name": each, "inWrt": 0, "outWrt": i, "sens": [1.0], **vector}).json()
                for i in range(3)
            ]
            assert [slope["output"] for slope in slopes] == [[6.0], [2.0], [0.5]]
            assert [y["name"] for y in client.get(f"/v2/models/{each}").json()["outputs"]] == list(outputs)
            applied = client.post(f"/tesseract/{each}/apply", json={"inputs": {"x": [3.0]}}).json()
            assert list(applied) == list(outputs)


def test_names_with_capitals_work_in_every_protocol(client: httpx.Client) -> None:
    nodes = [
        {"name": "AX", "op": "matvec", "inputs": ["A", "X"]},
        {"name": "ax", "op": "square", "inputs": ["AX"]},
    ]
    document = {"inputs": ["A", "X"], "nodes": nodes, "outputs": {"Y": "ax"}}
    name = client.post("/v1/graphs", json=document).json()["name"]
    at, found = {"A": A, "X": X}, np.square(np.array(A) @ X)
    for mode in MODES:
        assert np.allclose(data(ask(client, name, "forward", inputs=at, mode=mode))["outputs"]["Y"], found)
    assert set(ask(client, name, "hvp", inputs=at, vectors={"X": V}, wrt=["X"])["products"]) == {"X"}
    slots = client.get(f"/v1/ops/{name}.vjp").json()["inputs"]
    assert [slot["name"] for slot in slots] == ["A", "X", "dY"]
    config = {"shape": {"A": [2, 2], "X": [2]}}
    evaluated = client.post("/Evaluate", json={"name": name, "input": [np.ravel(A).tolist(), X], "config": config})
    assert np.allclose(evaluated.json()["output"][0], found)
    tensors = [
        {"name": "A", "shape": [2, 2], "datatype": "FP64", "data": A},
        {"name": "X", "shape": [2], "datatype": "FP64", "data": X},
    ]
    inferred = client.post(f"/v2/models/{name}/infer", json={"inputs": tensors}).json()["outputs"]
    assert [(y["name"], np.allclose(y["data"], found)) for y in inferred] == [("Y", True)]
    jacobian = client.post(
        f"/tesseract/{name}/jacobian", json={"inputs": at, "jac_inputs": ["X"], "jac_outputs": ["Y"]}
    )
    assert jacobian.status_code == 200, jacobian.text
    with pullback.Client(str(client.base_url)) as one:
        exact = {"A": np.array(A), "X": np.array(X)}
        assert np.allclose(one.op(name).jacobian(exact, wrt=["X"]).jacobian["Y"]["X"], 2 * np.diag(A @ exact["X"]) @ A)


def test_umbridge_takes_the_sizes_of_its_config_where_a_graph_has_no_default(client: httpx.Client) -> None:
    nodes = [
        {"name": "c", "op": "concat", "inputs": {"a": "x", "b": "x"}},
        {"name": "p", "op": "slice", "inputs": {"x": "c"}, "attrs": {"begin": 4, "size": 2}},
    ]
    name = client.post("/v1/graphs", json=of_one(*nodes)).json()["name"]
    for config in ({"shape": [3]}, {"shape": {"x": [3]}}):
        at = {"name": name, "config": config}
        assert client.post("/InputSizes", json=at).json() == {"inputSizes": [3]}
        assert client.post("/OutputSizes", json=at).json() == {"outputSizes": [2]}
        assert client.post("/Evaluate", json={**at, "input": [[1.0, 2.0, 3.0]]}).json() == {"output": [[2.0, 3.0]]}
        gradient = client.post(
            "/Gradient", json={**at, "input": [[1.0, 2.0, 3.0]], "outWrt": 0, "inWrt": 0, "sens": [5, 7]}
        )
        assert gradient.json() == {"output": [0.0, 5.0, 7.0]}
    assert client.post("/ModelInfo", json={"name": name}).json()["support"]["Gradient"]
    for config, cure in (({}, "a shape for each of x"), ({"shape": [2]}, "a last axis of 6 or more")):
        refused = client.post("/InputSizes", json={"name": name, "config": config})
        assert (refused.status_code, cure in refused.text) == (400, True), refused.text


def test_an_evicted_graph_can_be_posted_again_in_every_protocol(client: httpx.Client) -> None:
    gone = f"graph.{'0' * 32}"
    answers = [
        client.post(f"/v1/ops/{gone}/forward", json={"inputs": {"x": [1.0]}}),
        client.post(f"/v2/models/{gone}/infer", json={"inputs": []}),
        client.get(f"/v2/models/{gone}.vjp"),
        client.post("/Evaluate", json={"name": gone, "input": [[1.0]]}),
        client.post(f"/tesseract/{gone}/apply", json={"inputs": {"x": [1.0]}}),
    ]
    for answer in answers:
        assert "again (POST /v1/graphs)" in answer.text, answer.text


def test_an_installed_graph_has_a_document_and_the_default_mode_of_a_page(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "norm_loss.graph.json").write_text(json.dumps(LOSS))
    (tmp_path / "steep.graph.json").write_text(json.dumps(of_one(MULTIPLY)))
    with serve(OPS_PATH=str(tmp_path)).client() as client:
        posted = client.post("/v1/graphs", json=of_one(MULTIPLY)).json()["name"]
        assert client.get("/v1/graphs/norm_loss").json()["nodes"] == LOSS["nodes"]
        modes = [client.get(f"/v1/ops/{name}").json()["default_mode"]["vjp"]["float32"] for name in ("steep", posted)]
        assert modes == ["xla", "graph"]
        refused = client.get("/v1/graphs/square")
        assert (refused.status_code, "not a graph of ops" in refused.json()["detail"]) == (404, True)


def test_a_put_needs_the_name_of_the_document(client: httpx.Client, loss: str) -> None:
    assert client.put(f"/v1/graphs/{loss}", json=LOSS).status_code == 200
    other = client.put(f"/v1/graphs/graph.{'0' * 32}", json=LOSS)
    assert other.status_code == 422
    assert other.json()["errors"][0]["expected"] == loss


@pytest.mark.parametrize("path", [f"/v1/graphs/graph.{'0' * 32}", f"/v1/ops/graph.{'0' * 32}", "/v1/ops/graph.x.vjp"])
def test_an_unknown_graph_has_a_cure(client: httpx.Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert "post its document again" in response.json()["detail"]


def test_a_graph_that_refuses_computed_values_names_the_node(client: httpx.Client) -> None:
    nodes = [
        {"name": "root", "op": "divide", "inputs": {"a": "x", "b": {"constant": 0.0}}},
        {"name": "w", "op": "self_adjoint_eig", "inputs": {"a": "root"}},
    ]
    posted = client.post("/v1/graphs", json=of_one(*nodes, output="w.w"))
    name = posted.json()["name"]
    assert "xla" not in posted.json()["modes"]
    for mode in ("graph", "eager", "v1"):
        response = client.post(f"/v1/ops/{name}/forward", json={"inputs": {"x": [[1.0]]}, "mode": mode})
        assert response.status_code == 422, response.text
        assert "node w" in response.json()["detail"]


def test_a_large_document_is_refused_before_it_is_read(client: httpx.Client) -> None:
    response = client.post("/v1/graphs", content=b" " * (1 << 21), headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert "1048576 bytes" in response.json()["detail"]


def test_sizes_of_nodes_are_known_before_the_graph_runs(client: httpx.Client) -> None:
    nodes = [
        {"name": "c", "op": "concat", "inputs": {"a": "x", "b": "x"}},
        {"name": "p", "op": "slice", "inputs": {"x": "c"}, "attrs": {"begin": 3, "size": 2}},
    ]
    name = client.post("/v1/graphs", json=of_one(*nodes)).json()["name"]
    assert data(ask(client, name, "forward", inputs={"x": [1.0, 2.0, 3.0]}))["outputs"]["y"] == [1.0, 2.0]
    response = client.post(f"/v1/ops/{name}/forward", json={"inputs": {"x": [1.0, 2.0]}})
    assert (response.status_code, response.json()["errors"][0]["expected"]) == (422, "a last axis of 5 or more")
