"""An op that declares that it has no second order, in every API."""

import httpx
import pytest

import pullback
from pullback.cli.catalogue import claim_of
from tests.conftest import Serve

PAGE = """
import tensorflow as tf
from ops import Claim, Example, Input, Op, Output


def gamma(a, x):
    return tf.math.igamma(a, x)


OP = Op(
    name="gamma", summary="the incomplete gamma function", doc=None, function=gamma,
    inputs=(Input("a", ("float64",), domain=(0.5, 5.0)), Input("x", ("float64",), domain=(0.1, 9.0))),
    outputs=(Output("y", ("float64",)),), mechanism="symbolic_gradient", source="", batching="elementwise",
    claim=lambda attrs: Claim(second=None), examples=(Example("one", {"a": [2.0], "x": [1.5]}),),
)
"""
AT = {"inputs": {"a": [2], "x": [1.5]}}
DECLARED = "op gamma has no second order: its claim declares second=None"


@pytest.fixture(scope="module")
def client(serve_for_module: Serve, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("first")
    (folder / "gamma.py").write_text(PAGE)
    with serve_for_module(OPS_PATH=str(folder)).client() as one:
        yield one


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("gamma/gradients", {}),
        ("gamma/vjp", {"cotangents": {"y": [1]}}),
        ("gamma/jvp", {"tangents": {"x": [1]}}),
        ("gamma/jacobian", {}),
        ("gamma/linearize", {}),
        ("gamma/verify", {"gradients": {"a": [-0.4], "x": [0.33469524]}}),
        ("gamma.vjp/forward", {"inputs": {**AT["inputs"], "dy": [1]}}),
        ("gamma.jvp/forward", {"inputs": {**AT["inputs"], "ta": [0], "tx": [1]}}),
    ],
)
def test_the_first_order_is_answered(path: str, more: dict[str, object], client: httpx.Client) -> None:
    assert client.post(f"/v1/ops/{path}", json=AT | more).status_code == 200


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("gamma/gradients", {"order": 2}),
        ("gamma/hvp", {"vectors": {"x": [1]}}),
        ("gamma/hessian", {}),
        ("gamma/hessian", {"diagonal": True}),
        ("gamma.vjp/gradients", {"inputs": {**AT["inputs"], "dy": [1]}}),
        ("gamma.vjp/vjp", {"inputs": {**AT["inputs"], "dy": [1]}}),
        ("gamma.vjp/jvp", {"inputs": {**AT["inputs"], "dy": [1]}, "tangents": {"dy": [1]}}),
        ("gamma.vjp/linearize", {"inputs": {**AT["inputs"], "dy": [1]}}),
        ("gamma.jvp/jacobian", {"inputs": {**AT["inputs"], "ta": [0], "tx": [1]}}),
        ("gamma.vjp.vjp/forward", {"inputs": {**AT["inputs"], "dy": [1], "dda": [1], "ddx": [1]}}),
    ],
)
@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_the_second_order_is_refused_with_the_declaration(
    path: str, more: dict[str, object], mode: str, client: httpx.Client
) -> None:
    answer = client.post(f"/v1/ops/{path}", json=AT | more | {"mode": mode})
    assert answer.status_code == 422
    assert DECLARED in answer.json()["detail"]
    assert answer.json()["errors"][0]["expected"] == "derivatives of the first order"


def test_the_catalogue_says_so(client: httpx.Client) -> None:
    [summary] = [op for op in client.get("/v1/ops").json()["ops"] if op["name"] == "gamma"]
    assert summary["claim"] == {"first": "derivative", "second": None, "linear": True}
    assert client.get("/v1/ops/gamma").json()["derivations"] == ["vjp", "jvp"]
    for derived in ("gamma.vjp", "gamma.jvp"):
        contract = client.get(f"/v1/ops/{derived}").json()
        assert (contract["claim"], contract["derivations"]) == (None, [])


def test_the_client_reads_it(client: httpx.Client) -> None:
    with pullback.Client(str(client.base_url)) as service:
        op = service.op("gamma")
        claim = op.contract().claim
        assert claim is not None
        assert (claim.first, claim.second, claim.linear) == ("derivative", None, True)
        assert claim_of(op.contract()) == "derivative, then no second order"
        assert service.op("gamma.vjp").contract().claim is None
        assert claim_of(service.op("gamma.vjp").contract()) == ""
        assert op.check().verdict == "pass"


def test_the_checks_pass_and_say_so(client: httpx.Client) -> None:
    report = client.post("/v1/ops/gamma/check", json={}).json()
    assert report["verdict"] == "pass"
    [second] = [entry for entry in report["checks"] if entry["check"] == "second"]
    assert second["verdict"] == "skipped"
    assert "declares that it has no second order" in second["sentence"]
    report = client.post("/v1/ops/gamma/check", json={"orders": [1]}).json()
    others = {entry["check"] for entry in report["checks"] if entry["verdict"] != "pass"}
    assert (report["verdict"], others) == ("pass", {"value", "cost", "attributes", "declarations", "sparsity"})


def test_other_protocols_offer_the_first_order(client: httpx.Client) -> None:
    support = client.post("/ModelInfo", json={"name": "gamma"}).json()["support"]
    assert support == {"Evaluate": True, "Gradient": True, "ApplyJacobian": True, "ApplyHessian": False}
    body = {"name": "gamma", "outWrt": 0, "inWrt1": 0, "inWrt2": 0, "input": [[2], [1.5]], "sens": [1], "vec": [1]}
    answer = client.post("/ApplyHessian", json=body | {"config": {}})
    assert answer.status_code == 400
    assert "which has no second order" in answer.text
    assert client.get("/v2/models/gamma.jvp").status_code == 200
    for name in ("gamma.hvp", "gamma.hessian", "gamma.vjp.jacobian", "gamma.vjp.vjp"):
        assert client.get(f"/v2/models/{name}").status_code == 404, name
    assert client.get("/tesseract/gamma.vjp/openapi.json").json()["paths"].keys().isdisjoint({"/jacobian", "/jvp"})
