"""UM-Bridge at the root path: the numbers of the native API, the sizes, and the protocol's errors."""

import json
import math
from typing import Any

import httpx
import numpy as np
import pytest

from ops import discover
from tests.http.native_client import OF_EACH_KIND, SECRET, array, ask

OPS = discover().ops
EXAMPLES = [
    pytest.param(op, example, id=f"{op.name}-{example.name}")
    for op in map(OPS.__getitem__, OF_EACH_KIND)
    for example in op.examples
]
X = [0.5, -1.0, 2.0]
FLAT = {"shape": [3]}


def call(client: httpx.Client, path: str, /, **fields: Any) -> Any:
    response = client.post(path, content=json.dumps(fields))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def expect_error(response: httpx.Response, status: int, kind: str) -> str:
    """Return the message of an error, which must have exactly a type and a message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert list(document) == ["error"]
    assert list(document["error"]) == ["type", "message"]
    assert document["error"]["type"] == kind
    message = document["error"]["message"]
    assert 0 < len(message) <= 900
    assert message.isprintable()
    assert not SECRET.search(message)
    return message


def config_of(op, example) -> dict[str, Any]:
    shapes = {name: list(np.shape(value)) for name, value in example.inputs.items()}
    return {"shape": shapes, "attrs": dict(example.attrs)}


def flat(value: Any) -> list[float]:
    return np.ravel(value).tolist()


def native(client: httpx.Client, op, example, operation: str, **fields: Any) -> dict[str, Any]:
    request = {"inputs": dict(example.inputs), "attrs": dict(example.attrs), "dtype": "float64", **fields}
    return ask(client, op.name, operation, **request)


@pytest.mark.share(3)
@pytest.mark.slow
@pytest.mark.parametrize(("op", "example"), EXAMPLES)
def test_every_op_matches_the_native_api(client, op, example):
    config, at = config_of(op, example), {"name": op.name, "input": [flat(x) for x in example.inputs.values()]}
    outputs = {name: array(y) for name, y in native(client, op, example, "forward")["outputs"].items()}
    assert call(client, "/InputSizes", name=op.name, config=config)["inputSizes"] == list(map(len, at["input"]))
    assert call(client, "/OutputSizes", name=op.name, config=config)["outputSizes"] == [
        y.size for y in outputs.values()
    ]
    found = call(client, "/Evaluate", **at, config=config)["output"]
    for got, y in zip(found, outputs.values(), strict=True):
        np.testing.assert_array_equal(got, y.ravel())
    support = call(client, "/ModelInfo", name=op.name)["support"]
    live_in = [i for i, slot in enumerate(op.inputs) if op.is_differentiable(slot, "float64")]
    live_out = [i for i, slot in enumerate(op.outputs) if op.is_differentiable(slot, "float64")]
    rng = np.random.default_rng(3)
    for o in live_out:
        y = op.outputs[o].name
        sens = rng.normal(size=outputs[y].shape)
        for i in live_in:
            x, request = op.inputs[i].name, {**at, "config": config, "outWrt": o}
            gradient = native(client, op, example, "vjp", cotangents={y: sens.tolist()}, wrt=[x])["gradients"][x]
            wanted = np.zeros(len(at["input"][i])) if gradient is None else array(gradient).ravel()
            found = call(client, "/Gradient", **request, inWrt=i, sens=flat(sens))["output"]
            np.testing.assert_array_equal(found, wanted)
            if not support["ApplyJacobian"]:
                continue
            vec = rng.normal(size=np.shape(example.inputs[x]))
            tangent = native(client, op, example, "jvp", tangents={x: vec.tolist()})["tangents"][y]
            wanted = np.zeros(sens.size) if tangent is None else array(tangent).ravel()
            found = call(client, "/ApplyJacobian", **request, inWrt=i, vec=flat(vec))["output"]
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_default_sizes_fit_each_other(client, op):
    sizes = call(client, "/InputSizes", name=op.name)["inputSizes"]
    assert len(sizes) == len(op.inputs)
    assert all(type(size) is int and size >= 1 for size in sizes)
    found = call(client, "/Evaluate", name=op.name, input=[[0.0] * size for size in sizes])["output"]
    assert [len(y) for y in found] == call(client, "/OutputSizes", name=op.name)["outputSizes"]


def test_info_describes_the_models(client):
    info = client.get("/Info")
    assert info.headers["content-type"] == "application/json"
    assert list(info.json()) == ["protocolVersion", "models"]
    assert info.json()["protocolVersion"] == 1.0
    names = info.json()["models"]
    assert {name for name in names if "." not in name} == set(OPS)
    assert {"square.vjp", "square.jvp"} <= set(names)
    all_of_it = dict.fromkeys(("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"), True)
    assert call(client, "/ModelInfo", name="log1pexp") == {"support": all_of_it}
    assert call(client, "/ModelInfo", name="clip_gradient") == {"support": {**all_of_it, "ApplyJacobian": False}}


def test_a_mixed_hessian_is_applied_by_rows(plugged):
    at = {"name": "skewed", "input": [[1, 2, 3], [4, 5, 6]], "outWrt": 0, "sens": [2]}

    def product(in1: int, in2: int, vec: list[float]) -> list[float]:
        return call(plugged, "/ApplyHessian", **at, inWrt1=in1, inWrt2=in2, vec=vec)["output"]

    # ∂g_x[a]/∂x[b] = dy (3 a + b), ∂g_x/∂z = 3 dy, ∂g_z/∂x = 5 dy, ∂g_z/∂z = 0: see the op.
    assert product(0, 0, [1, 10, 100]) == [2 * (0 + 10 + 200), 2 * (3 + 40 + 500), 2 * (6 + 70 + 800)]
    assert product(0, 1, [1, 10, 100]) == [6, 60, 600]
    assert product(1, 0, [1, 10, 100]) == [10, 100, 1000]
    assert product(1, 1, [1, 10, 100]) == [0, 0, 0]


def test_a_declared_second_order_is_honoured(client):
    at = {"name": "log1pexp2", "input": [X], "config": FLAT, "outWrt": 0, "inWrt1": 0, "inWrt2": 0}
    found = call(client, "/ApplyHessian", **at, sens=[1, 2, 3], vec=[1, -1, 2])["output"]
    wanted = [s * v * (1 - math.exp(x)) for s, v, x in zip([1, 2, 3], [1, -1, 2], X, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=8 * np.finfo(float).eps)


def test_non_finite_numbers_are_readable_by_the_client(client):
    response = client.post("/Evaluate", json={"name": "square", "config": FLAT, "input": [[1e200, 1, "NaN"]]})
    assert response.text == '{"output": [[Infinity, 1.0, NaN]]}'
    found = client.post(
        "/Gradient",
        json={
            "name": "square",
            "config": FLAT,
            "input": [[1, 2, 3]],
            "outWrt": 0,
            "inWrt": 0,
            "sens": ["Infinity", 0, 1],
        },
    )
    assert found.text == '{"output": [Infinity, 0.0, 6.0]}'


def test_the_config_sets_dtype_and_attributes(client):
    config = {"shape": [], "dtype": "float32", "attrs": {"scale": 0.1}}
    found = call(client, "/Gradient", name="scale_gradient", input=[[1]], outWrt=0, inWrt=0, sens=[1], config=config)
    # The float32 nearest to 0.1, written as a float64.
    assert found == {"output": [float(np.float32(0.1))]}
    integers = call(client, "/Evaluate", name="square", input=[[3, 4]], config={"shape": [2], "dtype": "int64"})
    assert integers == {"output": [[9, 16]]}


@pytest.mark.parametrize(
    "kind", ["application/json", "text/plain;charset=utf-8", "application/x-www-form-urlencoded", None]
)
def test_content_types_of_clients_are_accepted(client, kind):
    headers = {"content-type": kind} if kind else {}
    body = json.dumps({"name": "square", "config": FLAT, "input": [X]})
    assert client.post("/Evaluate", content=body, headers=headers).json() == {"output": [[0.25, 1.0, 4.0]]}


@pytest.mark.parametrize("empty", [[], None])
def test_an_empty_list_and_null_are_empty_configs(client, empty):
    at = {"input": [[1, 2, 3, 4, 5, 6]]}
    assert call(client, "/InputSizes", name="square", config=empty) == {"inputSizes": [6]}
    assert call(client, "/OutputSizes", name="square", config={"attrs": empty}) == {"outputSizes": [6]}
    assert call(client, "/Evaluate", name="square", config=empty, **at) == {"output": [[1, 4, 9, 16, 25, 36]]}
    found = call(client, "/Gradient", name="square", config=empty, outWrt=0, inWrt=0, sens=[1] * 6, **at)
    assert found == {"output": [2, 4, 6, 8, 10, 12]}


AGENTS = {"python-requests/2.34.2": "literal", "cpp-httplib/0.11.1": "error", "httr2/1.0.0 libcurl/8.4.0": "string"}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("asked", [None, "literal", "string", "error"])
def test_the_config_or_the_client_selects_the_form_of_non_finite_numbers(client, agent, asked):
    config = {**FLAT, "nonfinite": asked} if asked else FLAT
    headers = {"user-agent": agent}
    values = {"name": "square", "config": config, "input": [[1e200, 1, "NaN"]]}
    products = {**values, "input": [[1, 2, 3]], "outWrt": 0, "inWrt": 0, "sens": ["-Inf", 1, 0]}
    responses = [client.post(p, json=b, headers=headers) for p, b in (("/Evaluate", values), ("/Gradient", products))]
    if (asked or AGENTS[agent]) == "error":
        messages = [expect_error(response, 406, "NotAcceptable") for response in responses]
        assert "output.0.0: expected a finite number, since JSON has no others, got Infinity" in messages[0]
        assert "output.0: expected a finite number, since JSON has no others, got -Infinity" in messages[1]
        return
    expected = ('{"output": [[Infinity, 1.0, NaN]]}', '{"output": [-Infinity, 4.0, 0.0]}')
    if (asked or AGENTS[agent]) == "string":
        expected = ('{"output": [["Infinity", 1.0, "NaN"]]}', '{"output": ["-Infinity", 4.0, 0.0]}')
    assert tuple(response.text for response in responses) == expected


BASE = {"name": "square", "config": FLAT, "input": [X]}
GRADIENT = {**BASE, "outWrt": 0, "inWrt": 0, "sens": [1, 1, 1]}
TANGENT = {**BASE, "outWrt": 0, "inWrt": 0, "vec": [1, 1, 1]}
HESSIAN = {**BASE, "outWrt": 0, "inWrt1": 0, "inWrt2": 0, "sens": [1, 1, 1], "vec": [1, 1, 1]}
WRONG = [
    ("/Evaluate", {"config": FLAT}, "ModelNotFound", "did you mean square", {"name": "squares"}),
    ("/Evaluate", {}, "ModelNotFound", "unknown op", {"name": "nope", "what": 1}),
    ("/ModelInfo", {}, "InvalidInput", "name: expected a string", {"name": 3}),
    ("/ModelInfo", {}, "InvalidInput", "name: missing field", {"name": None}),
    ("/InputSizes", {"cofig": {}}, "InvalidInput", "cofig: unknown field", {}),
    ("/InputSizes", {"config": {"shpe": [3]}}, "InvalidInput", "config.shpe: unknown field", {}),
    ("/OutputSizes", {"config": [3]}, "InvalidInput", "config: expected an object, got a list of 1", {}),
    ("/Evaluate", {"config": {"shape": [4]}}, "InvalidInput", "expected 4 numbers for shape [4], got 3", BASE),
    ("/Evaluate", {"config": {"shape": [-1]}}, "InvalidInput", "config.shape.0: invalid dimension", BASE),
    ("/Evaluate", {"config": {"shape": 3}}, "InvalidInput", "config.shape: expected a list of integers", BASE),
    ("/Evaluate", {"config": {"shape": {"z": [3]}}}, "InvalidInput", "config.shape.z: unknown input", BASE),
    ("/Evaluate", {"config": {"shapes": [3]}}, "InvalidInput", "such as shape", BASE),
    ("/Evaluate", {"config": {"dtype": "float31"}}, "InvalidInput", "config.dtype: op square does not accept", BASE),
    ("/Evaluate", {"config": {"dtype": 1}}, "InvalidInput", "config.dtype", BASE),
    ("/Evaluate", {"config": {"nonfinite": "null"}}, "InvalidInput", "expected one of literal, string, error", BASE),
    ("/InputSizes", {"config": {"nonfinite": ["string"]}}, "InvalidInput", "config.nonfinite: unknown form", {}),
    ("/Evaluate", {"config": {"attrs": {"a": 1}}}, "InvalidInput", "config.attrs.a: unknown field", BASE),
    ("/Evaluate", {"config": {"attrs": 1}}, "InvalidInput", "expected an object of at most 64 attributes, got 1", BASE),
    ("/Evaluate", {"config": {"attrs": {str(i): i for i in range(65)}}}, "InvalidInput", "got an object", BASE),
    ("/ModelInfo", {"config": {}}, "InvalidInput", "config: unknown field", {}),
    ("/Evaluate", {"input": X}, "InvalidInput", "a list of 1 lists of numbers, one for each of x", BASE),
    ("/Evaluate", {"input": [X, X]}, "InvalidInput", "a list of 1 lists of numbers, one for each of x", BASE),
    ("/Evaluate", {"input": "x"}, "InvalidInput", "got the string", BASE),
    ("/Evaluate", {"input": [1.0]}, "InvalidInput", "input.0: expected a list of 3 numbers, got 1.0", BASE),
    ("/Evaluate", {"input": [[[1], [2], [3]]]}, "InvalidInput", "got shape [3, 1]", BASE),
    ("/Evaluate", {"input": [[1, "2", 3]]}, "InvalidInput", "input.0.1: expected a number", BASE),
    ("/Evaluate", {"input": [[1, None, 3]]}, "InvalidInput", "C++ and MATLAB write all three as null, got null", BASE),
    ("/Evaluate", {"input": [["NA", 2, "Inf"]]}, "InvalidInput", 'input.0.0: expected a number, or "NaN"', BASE),
    ("/Evaluate", {"input": [[1, 2]]}, "InvalidInput", "expected 3 numbers", BASE),
    ("/Evaluate", {"sens": [1]}, "InvalidInput", "sens: unknown field", BASE),
    ("/Gradient", {"sens": [1, 1]}, "InvalidInput", "sens: length mismatch for vector y", GRADIENT),
    ("/Gradient", {"sens": 1}, "InvalidInput", "sens: expected a list of 3 numbers, got 1", GRADIENT),
    (
        "/Gradient",
        {"outWrt": 1},
        "InvalidInput",
        "outWrt: unknown vector; expected an index from 0 to 0",
        GRADIENT,
    ),
    ("/Gradient", {"inWrt": -1}, "InvalidInput", "inWrt: unknown vector", GRADIENT),
    ("/Gradient", {"inWrt": True}, "InvalidInput", "inWrt: unknown vector", GRADIENT),
    ("/Gradient", {"inWrt": 0.5}, "InvalidInput", "inWrt: unknown vector", GRADIENT),
    ("/Gradient", {"inWrt": None}, "InvalidInput", "inWrt: missing field", GRADIENT),
    ("/ApplyJacobian", {"vec": [1, 1, 1, 1]}, "InvalidInput", "vec: length mismatch for vector x", TANGENT),
    ("/ApplyHessian", {"vec": [1]}, "InvalidInput", "vec: length mismatch for vector x", HESSIAN),
    ("/ApplyHessian", {"sens": []}, "InvalidInput", "sens: length mismatch for vector y", HESSIAN),
    ("/ApplyHessian", {"inWrt2": 1}, "InvalidInput", "inWrt2: unknown vector", HESSIAN),
    ("/ApplyJacobian", {}, "UnsupportedFeature", "not linear in the cotangent", {"name": "clip_gradient"}),
]


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_errors_have_the_protocols_format(client, case):
    path, changed, kind, message, base = case
    fields = {"name": "square", **base, **changed}
    sent = {name: value for name, value in fields.items() if value is not None}
    assert message in expect_error(client.post(path, content=json.dumps(sent)), 400, kind)


def test_an_input_without_a_gradient_is_named(client):
    at = {
        "name": "softmax_cross_entropy",
        "config": {"shape": {"logits": [1, 2], "labels": [1]}},
        "input": [[0, 0], [1]],
    }
    request = {**at, "outWrt": 0, "inWrt": 1, "sens": [1]}
    message = expect_error(client.post("/Gradient", json=request), 400, "InvalidInput")
    assert message == "inWrt: labels is not differentiable; expected one of 0 (logits), got 1"
    found = call(client, "/Gradient", **{**request, "inWrt": 0})["output"]
    assert found == [0.5, -0.5]
    wrong = {**at, "input": [[0, 0], [2]]}
    message = expect_error(client.post("/Evaluate", json=wrong), 400, "InvalidInput")
    assert message == "input.1.0: a label names no class; expected 0 <= label < 2, the number of classes, got 2"


def test_impossible_sizes_are_refused(client):
    shape = {"features": [1, 1, 1, 1 << 28], "rois": [1 << 28, 5]}
    config = {"shape": shape, "attrs": {"pooled_height": 16, "pooled_width": 16}}
    message = expect_error(
        client.post("/OutputSizes", json={"name": "roi_pool", "config": config}), 400, "InvalidInput"
    )
    assert message.startswith("config.shape: output pooled would have 18446744073709551616 elements")


def test_an_op_that_is_not_a_model_is_not_found(plugged):
    names = plugged.get("/Info").json()["models"]
    assert "skewed" in names
    for name in ("apart", "masked", "parted"):
        assert name not in names
        expect_error(plugged.post("/Evaluate", json={"name": name}), 400, "ModelNotFound")


@pytest.mark.parametrize("body", [b"", b"{", b'{"name": NaN}', b"\xff", b"[]"])
def test_malformed_documents_are_invalid_input(client, body):
    expect_error(client.post("/Evaluate", content=body), 400, "InvalidInput")


def test_other_methods_types_and_paths_are_refused(client):
    response = client.get("/Evaluate")
    expect_error(response, 405, "MethodNotAllowed")
    assert response.headers["allow"] == "POST"
    expect_error(client.post("/Info"), 405, "MethodNotAllowed")
    expect_error(
        client.post("/Evaluate", content=b"{}", headers={"content-type": "text/xml"}), 415, "UnsupportedMediaType"
    )
    compressed = {"content-encoding": "gzip"}
    expect_error(client.post("/Evaluate", content=b"{}", headers=compressed), 415, "UnsupportedMediaType")
    assert client.get("/evaluate").headers["content-type"] == "application/problem+json"
    assert client.post("/TestShMem", json={}).status_code == 404


@pytest.mark.parametrize("name", ["bare_many", "bare_none", "helper_shape", "not_registered", "stopped", "raises"])
def test_an_op_that_fails_is_invalid_output(plugged, name):
    request = {"name": name, "config": {"shape": [2]}, "input": [[1, 2]], "outWrt": 0, "inWrt": 0, "sens": [1, 1]}
    assert name in expect_error(plugged.post("/Gradient", json=request), 500, "InvalidOutput")


def test_limit_errors_have_the_protocols_format(serve):
    with serve(MAX_JSON_MB="1", PROTOCOLS="umbridge").client() as client:
        body = json.dumps({"name": "square", "input": [[0.0] * (1 << 19)]}).encode()
        for headers in ({}, {"content-type": "text/plain"}, {"inference-header-content-length": "2"}):
            expect_error(client.post("/Evaluate", content=body, headers=headers), 413, "BodyTooLarge")
        late = {"pullback-deadline-ms": "x"}
        expect_error(client.post("/Evaluate", json=BASE, headers=late), 400, "InvalidInput")


def test_deadline_errors_have_the_protocols_format(plugged):
    request = {"name": "endless", "config": {"shape": {"x": [1], "steps": []}}, "input": [[2.5], [1_000_000_000]]}
    headers = {"pullback-deadline-ms": "200"}
    expect_error(plugged.post("/Evaluate", json=request, headers=headers), 504, "DeadlinePassed")
    assert call(plugged, "/Evaluate", **{**request, "input": [[2.5], [1]]}) == {"output": [[2.5]]}


def test_requests_are_counted_by_operation(plugged):
    def read_counts() -> dict[str, float]:
        lines = plugged.get("/metrics").text.splitlines()
        return {
            name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        }

    before = read_counts()
    at = {"name": "skewed", "input": [[1, 2, 3], [4, 5, 6]], "outWrt": 0, "inWrt1": 0, "inWrt2": 1}
    for _ in range(3):
        call(plugged, "/ApplyHessian", **at, sens=[1], vec=[1, 1, 1])
    expect_error(plugged.post("/ApplyHessian", json={"name": "nobody"}), 400, "ModelNotFound")
    after = read_counts()
    for labels, more in (
        ('op="skewed",operation="hvp",status="200"', 3),
        ('op="",operation="umbridge",status="400"', 1),
    ):
        name = f"pullback_requests_total{{{labels}}}"
        assert after[name] == before.get(name, 0) + more


def test_the_protocol_can_be_disabled(serve):
    with serve(PROTOCOLS="").client() as client:
        for response in (client.get("/Info"), client.post("/Evaluate", json=BASE)):
            assert response.status_code == 404
            assert response.headers["content-type"] == "application/problem+json"
