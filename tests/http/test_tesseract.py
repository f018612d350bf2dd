"""Tesseract: the results of the native API in another protocol's encodings, with that protocol's errors."""

import base64
import json
from functools import partial
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families

from app import errors
from app.routes.tesseract.forms import places
from app.routes.tesseract.paths import dialect, names
from app.tensors import fast_json
from app.tensors.casting import Numbers
from app.tensors.json import Decoded
from ops import Example, Input, Op, Output, custom_gradient, discover
from tests.http.native_client import MAX_ENTRIES, MAX_GOT, MAX_TEXT, SECRET, WORDS, array, ask, problem

JSON = {"content-type": "application/json"}
IN_LISTS = {**JSON, "accept": "application/json"}
OPS = discover().ops
NATIVE = {
    "apply": "forward",
    "jacobian": "jacobian",
    "jacobian_vector_product": "jvp",
    "vector_jacobian_product": "vjp",
}
VJP, JVP = "vector_jacobian_product", "jacobian_vector_product"
X = {"shape": [2], "dtype": "float32", "data": {"buffer": [1, 2], "encoding": "json"}}
BASE64 = {"buffer": "AACAPwAAAEA=", "encoding": "base64"}


def send(client: httpx.Client, op: str, endpoint: str, body: Any, headers: dict[str, str] = JSON) -> httpx.Response:
    return client.post(f"/tesseract/{op}/{endpoint}", content=json.dumps(body), headers=headers)


def result_of(client: httpx.Client, op: str, endpoint: str, body: Any, headers: dict[str, str] = JSON) -> Any:
    """Return the response to a valid request, with an array for each tensor."""
    response = send(client, op, endpoint, body, headers)
    assert response.status_code == 200, f"{op}/{endpoint} {body}: {response.text}"
    assert response.headers["content-type"] == "application/json"
    return arrays(json.loads(response.content, parse_constant=lambda word: 1 / 0))


def arrays(tree: Any) -> Any:
    if tree.get("object_type") != "array":
        return {name: arrays(value) for name, value in tree.items()}
    assert set(tree) == {"object_type", "shape", "dtype", "data"}
    assert set(tree["data"]) == {"buffer", "encoding"}
    buffer, dtype = tree["data"]["buffer"], dtype_of(tree["dtype"])
    if tree["data"]["encoding"] == "base64":
        return np.frombuffer(base64.b64decode(buffer, validate=True), dtype).reshape(tree["shape"])
    assert tree["data"]["encoding"] == "json"
    assert np.shape(buffer) == tuple(tree["shape"]) or 0 in tree["shape"]
    flat = [WORDS.get(x, x) for x in np.array(buffer, object).reshape(-1)]
    return np.array(flat, np.float64).astype(dtype).reshape(tree["shape"])


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, "bfloat16") if name == "bfloat16" else name)  # noqa: B009


def typed(value: np.ndarray) -> dict[str, Any]:
    """Return an array as the stock client sends it: without its type."""
    buffer = base64.b64encode(value.tobytes()).decode()
    return {"shape": value.shape, "dtype": value.dtype.name, "data": {"buffer": buffer, "encoding": "base64"}}


def native(client: httpx.Client, op: str, operation: str, **body: Any) -> dict[str, Any]:
    """Return the response of the native API, with an array for each tensor."""
    answer = ask(client, op, operation, encoding="base64", **body)
    return {name: native_arrays(value) for name, value in answer.items() if name != "absent"}


def native_arrays(tree: Any) -> Any:
    if tree is None or "dtype" in tree:
        return tree and array(tree)
    return {name: native_arrays(value) for name, value in tree.items()}


def same(found: Any, wanted: Any) -> None:
    """Check that two trees of arrays are the same, bit for bit; null is zeros here."""
    if isinstance(wanted, dict):
        assert set(found) == set(wanted)
        for name, value in wanted.items():
            same(found[name], value)
    elif wanted is None:
        assert not found.any()
    else:
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("op", OPS)
def test_the_document_describes_the_endpoints(client: httpx.Client, op: str):
    one, document = OPS[op], client.get(f"/tesseract/{op}/openapi.json").json()
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        Draft202012Validator.check_schema(schema)
        assert name in json.dumps(document).replace(f'"{name}":', ""), f"{name} is for nothing"
    linear = one.claim(one.attrs()).linear
    wanted = {"/apply", "/abstract_eval", "/health", f"/{VJP}"} | ({f"/{JVP}", "/jacobian"} if linear else set())
    assert set(document["paths"]) == wanted
    for endpoint in NATIVE:
        assert (send(client, op, endpoint, {}).status_code == 404) == (f"/{endpoint}" not in wanted)

    # The JAX client reads these.
    assert list(schemas["Apply_InputSchema"]["properties"]) == [
        *(slot.name for slot in one.inputs),
        *one.attrs.model_fields,
    ]
    for kind, slots in (("Input", one.inputs), ("Output", one.outputs)):
        live = [slot.name for slot in slots if slot.differentiable]
        assert list(schemas[f"Apply{kind}Schema"]["differentiable_arrays"]) == live
        for slot in slots:
            schema = schemas[f"Apply_{kind}Schema"]["properties"][slot.name]
            assert schema["properties"]["object_type"]["const"] == "array"
            assert schema["array_flags"] == (["DIFFERENTIABLE"] if slot.name in live else [])
            assert schema["properties"]["dtype"]["enum"] == list(slot.dtypes)


def check(document: dict[str, Any], op: str, endpoint: str, body: dict[str, Any], client: httpx.Client) -> None:
    """Check a request and its response against the document, which must refuse both with an unknown field."""
    operation = document["paths"][f"/{endpoint}"]["post"]
    body = json.loads(json.dumps(body))
    for part, value in (
        (operation["requestBody"], body),
        (operation["responses"]["200"], send(client, op, endpoint, body).json()),
        (operation["responses"]["422"], send(client, op, endpoint, {"inputs": 3}).json()),
    ):
        schema = {**part["content"]["application/json"]["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(value)
        assert not Draft202012Validator(schema).is_valid({**value, "nothing": 1})


@pytest.mark.parametrize(
    "x",
    [
        [1, 2],
        X,
        {"object_type": "array", **X},
        {**X, "data": {"buffer": [1.0, 2], "encoding": "raw"}},
        {**X, "data": BASE64},
        {**X, "data": {**BASE64, "compression": None}},
    ],
)
def test_every_array_encoding_is_accepted(client: httpx.Client, x: Any):
    same(result_of(client, "square", "apply", {"inputs": {"x": x}}), {"y": np.array([1, 4], np.float32)})


def test_a_number_is_an_array_of_rank_0(client: httpx.Client):
    same(result_of(client, "square", "apply", {"inputs": {"x": 3}}), {"y": np.array(9, np.float32)})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_typed_arrays_set_the_dtype_of_the_others(plugged: httpx.Client, dtype: str):
    x = {**X, "dtype": dtype}
    for inputs in ({"x": x, "z": [3, 4]}, {"x": [1, 2], "z": {**x, "data": {"buffer": [3, 4], "encoding": "json"}}}):
        found = result_of(plugged, "squares", "apply", {"inputs": inputs})
        same(found, native(plugged, "squares", "forward", inputs={"x": [1, 2], "z": [3, 4]}, dtype=dtype)["outputs"])
        assert found["y"].dtype == dtype_of(dtype)


@pytest.mark.parametrize("accept", [None, "*/*", "application/*", "application/json+base64; gpu_transport=none"])
def test_base64_is_the_default_encoding(client: httpx.Client, accept: str | None):
    headers = {**JSON, "accept": accept} if accept else JSON
    found = send(client, "square", "apply", {"inputs": {"x": X}}, headers).json()
    assert found["y"]["data"] == {"buffer": "AACAPwAAgEA=", "encoding": "base64"}


@pytest.mark.parametrize("accept", ["application/json", "application/json; q=0.9, application/json+base64; q=0.1"])
def test_responses_can_be_lists(client: httpx.Client, accept: str):
    found = send(client, "square", "apply", {"inputs": {"x": [[1], [2]]}}, {**JSON, "accept": accept}).json()
    wanted = {"buffer": [[1], [4]], "encoding": "json"}
    assert found == {"y": {"object_type": "array", "shape": [2, 1], "dtype": "float32", "data": wanted}}


def test_non_finite_numbers_are_words(client: httpx.Client):
    x = {"shape": [3], "dtype": "float64", "data": {"buffer": ["NaN", "-Infinity", 1e200], "encoding": "json"}}
    response = send(client, "square", "apply", {"inputs": {"x": x}}, IN_LISTS)
    assert response.json()["y"]["data"]["buffer"] == ["NaN", "Infinity", "Infinity"]
    wanted = np.array([np.nan, np.inf, np.inf])
    assert np.array_equal(result_of(client, "square", "apply", {"inputs": {"x": x}})["y"], wanted, equal_nan=True)


@pytest.mark.parametrize("headers", [JSON, IN_LISTS])
def test_empty_arrays_are_accepted(client: httpx.Client, headers: dict[str, str]):
    for x in ([], {**X, "shape": [0, 3], "data": {"buffer": "", "encoding": "base64"}}):
        found = result_of(client, "square", "apply", {"inputs": {"x": x}}, headers)
        assert found["y"].shape == ((0,) if x == [] else (0, 3))


@pytest.mark.parametrize(
    "value",
    [0.25, *({"shape": [], "dtype": d, "data": {"buffer": 0.25, "encoding": "json"}} for d in ("float16", "float64"))],
)
def test_attributes_are_inputs(client: httpx.Client, value: Any):
    body = {"inputs": {"x": X, "scale": value}, "vjp_inputs": ["x"], "vjp_outputs": ["y"]}
    found = result_of(client, "scale_gradient", VJP, {**body, "cotangent_vector": {"y": [1, 2]}})
    same(found, {"x": np.array([0.25, 0.5], np.float32)})


def test_static_attributes_shape_the_outputs(client: httpx.Client):
    [features, rois] = ({"shape": s, "dtype": "float32"} for s in ([1, 8, 8, 3], [2, 5]))
    two = {"shape": [], "dtype": "int64", "data": {"buffer": 2, "encoding": "json"}}
    scale = {"shape": [], "dtype": "float32"}
    inputs = {"features": features, "rois": rois, "pooled_height": two, "pooled_width": 3, "spatial_scale": scale}
    found = send(client, "roi_pool", "abstract_eval", {"inputs": inputs}).json()
    assert found["pooled"] == {"shape": [2, 2, 3, 3], "dtype": "float32"}
    assert found["argmax"] == {"shape": [2, 2, 3, 3], "dtype": "int32"}


@pytest.mark.parametrize(
    ("x", "shape", "dtype"),
    [
        (X, [2], "float32"),
        ({**X, "dtype": "float64"}, [2], "float64"),
        ({"shape": [1 << 20, 1 << 20], "dtype": "bfloat16"}, [1 << 20, 1 << 20], "bfloat16"),
        (3, [], "float32"),
        ([[1], [2]], [2, 1], "float32"),
    ],
)
def test_shapes_are_inferred_without_computation(client: httpx.Client, x: Any, shape: list[int], dtype: str):
    found = send(client, "square", "abstract_eval", {"inputs": {"x": x}}).json()
    assert found == {"y": {"shape": shape, "dtype": dtype}}


def test_an_unconnected_block_of_unknown_shape_is_zero(plugged: httpx.Client):
    inputs, seen = {"x": [1, 2, 3], "z": [4, 5]}, {"jvp_inputs": ["x"], "jvp_outputs": ["p", "q"]}
    found = result_of(plugged, "apart", JVP, {"inputs": inputs, **seen, "tangent_vector": {"x": [1, 1, 1]}})
    same(found, {"p": np.float32([2, 4, 6]), "q": np.zeros(4, np.float32)})
    found = result_of(
        plugged, "apart", "jacobian", {"inputs": inputs, "jac_inputs": ["x", "z"], "jac_outputs": ["p", "q"]}
    )
    same(found["p"], {"x": np.diag(np.float32([2, 4, 6])), "z": np.zeros((3, 2), np.float32)})
    same(found["q"], {"x": np.zeros((4, 3), np.float32), "z": np.float32([[1, 0], [0, 1], [1, 0], [0, 1]])})


def test_unconnected_blocks_are_zero(plugged: httpx.Client):
    inputs = {"x": [1, 3, 2], "hint": {"shape": [], "dtype": "float64", "data": {"buffer": 1, "encoding": "json"}}}
    lists = {"vjp_inputs": ["hint", "x"], "vjp_outputs": ["y"]}
    found = result_of(plugged, "largest", VJP, {"inputs": inputs, **lists, "cotangent_vector": {"y": 1}})
    same(found, {"x": np.array([0, 2.0, 0]), "hint": np.array(0.0)})
    body = {"inputs": inputs, "jac_inputs": ["x", "hint"], "jac_outputs": ["y"]}
    same(result_of(plugged, "largest", "jacobian", body), {"y": {"x": np.array([0, 2.0, 0]), "hint": np.array(0.0)}})
    body = {"inputs": inputs, "jvp_inputs": ["hint"], "jvp_outputs": ["y"], "tangent_vector": {"hint": 1}}
    same(result_of(plugged, "largest", JVP, body), {"y": np.array(0.0)})


def test_unconnected_blocks_have_a_shape(plugged: httpx.Client):
    inputs = {"x": {**X, "dtype": "float64"}, "gauge": [[1, 2, 3]]}
    lists = {"vjp_inputs": ["gauge"], "vjp_outputs": ["y"]}
    found = result_of(plugged, "offset", VJP, {"inputs": inputs, **lists, "cotangent_vector": {"y": [1, 2]}})
    same(found, {"gauge": np.zeros((1, 3))})
    body = {"inputs": inputs, "jac_inputs": ["gauge", "x"], "jac_outputs": ["y"]}
    same(result_of(plugged, "offset", "jacobian", body), {"y": {"gauge": np.zeros((2, 1, 3)), "x": 2 * np.eye(2)}})
    body = {"inputs": inputs, "jvp_inputs": ["gauge"], "jvp_outputs": ["y"], "tangent_vector": {"gauge": [[1, 2, 3]]}}
    same(result_of(plugged, "offset", JVP, body), {"y": np.zeros(2)})


def test_unlisted_outputs_have_zero_weight(client: httpx.Client):
    a = [[2, 1], [1, 3]]
    body = {"inputs": {"a": a}, "vjp_inputs": ["a"], "vjp_outputs": ["w"], "cotangent_vector": {"w": [1, 0]}}
    wanted = native(client, "self_adjoint_eig", "vjp", inputs={"a": a}, cotangents={"w": [1, 0], "v": [[0, 0], [0, 0]]})
    same(result_of(client, "self_adjoint_eig", VJP, body), wanted["gradients"])
    body = {"inputs": {"a": a}, "jvp_inputs": ["a"], "jvp_outputs": ["v"], "tangent_vector": {"a": a}}
    wanted = native(client, "self_adjoint_eig", "jvp", inputs={"a": a}, tangents={"a": a})
    same(result_of(client, "self_adjoint_eig", JVP, body), {"v": wanted["tangents"]["v"]})


def test_health_accepts_a_body_and_keeps_the_connection(client: httpx.Client):
    for _ in range(2):
        response = client.request("GET", "/tesseract/square/health", content=b"null", headers=JSON)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
        same(result_of(client, "square", "apply", {"inputs": {"x": X}}), {"y": np.array([1, 4], np.float32)})


def test_the_content_type_is_optional(client: httpx.Client):
    request = client.build_request("POST", "/tesseract/square/apply", content=json.dumps({"inputs": {"x": X}}))
    assert "content-type" not in request.headers
    assert client.send(request).status_code == 200


LOGITS = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 2, 2, 3)
CLASSES = np.array([[0, 2], [1, 1]], np.int32)
COTANGENTS = np.linspace(1, 2, 8, dtype=np.float32).reshape(2, 2, 2)


def at_points(logits: np.ndarray, labels: np.ndarray, dy: np.ndarray | None = None) -> dict[str, Any]:
    body = {"inputs": {"logits": typed(logits), "labels": typed(labels)}}
    if dy is None:
        return body
    lists = {"vjp_inputs": ["logits"], "vjp_outputs": ["loss"]}
    return {**body, **lists, "cotangent_vector": {"loss": typed(dy)}}


def test_axes_in_front_of_an_op_of_fixed_rank_are_points(client: httpx.Client):
    """Two axes, along which arrays have length 1 or the common length, or do not have at all."""

    def one(endpoint: str, *arrays: np.ndarray) -> np.ndarray:
        [array] = result_of(client, "softmax_cross_entropy", endpoint, at_points(*arrays)).values()
        return array

    values = np.array([[one("apply", LOGITS[i, j], CLASSES[j]) for j in (0, 1)] for i in (0, 1)])
    same(one("apply", LOGITS, np.stack([CLASSES, CLASSES])), values)
    same(one("apply", LOGITS, CLASSES[None]), values)
    same(one("apply", LOGITS, CLASSES[0]), one("apply", LOGITS, CLASSES[None, :1]))
    pulled = [[one(VJP, LOGITS[i, j], CLASSES[j], COTANGENTS[i, j]) for j in (0, 1)] for i in (0, 1)]
    same(one(VJP, LOGITS, CLASSES[None], COTANGENTS), np.array(pulled))
    same(
        one(VJP, LOGITS, CLASSES[None], COTANGENTS[:1]),
        one(VJP, LOGITS, CLASSES[None], COTANGENTS[[0, 0]]),
    )
    tangents = {
        "jvp_inputs": ["logits"],
        "jvp_outputs": ["loss"],
        "tangent_vector": {"logits": typed(LOGITS[::-1])},
    }
    pushed = result_of(client, "softmax_cross_entropy", JVP, {**at_points(LOGITS, CLASSES[None]), **tangents})["loss"]
    inner = (pulled * LOGITS[::-1]).sum(-1)  # of unit cotangents, as every row has its own
    np.testing.assert_allclose(pushed * COTANGENTS, inner, rtol=0, atol=1e-5)


def test_the_gradient_of_an_input_that_points_share_is_their_sum(client: httpx.Client):
    def pull(logits: np.ndarray) -> np.ndarray:
        body = at_points(logits, CLASSES[:, None], COTANGENTS)
        return result_of(client, "softmax_cross_entropy", VJP, body)["logits"]

    shared = LOGITS[:1, :1]
    found, each = pull(shared), pull(np.broadcast_to(shared, LOGITS.shape))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, each.sum((0, 1), keepdims=True), rtol=0, atol=1e-6)
    same(
        pull(np.ascontiguousarray(LOGITS[:, :1])),
        (each := pull(np.repeat(LOGITS[:, :1], 2, 1)))[:, :1] + each[:, 1:],
    )


@pytest.mark.parametrize(
    ("arrays", "loc", "words"),
    [
        ((LOGITS, CLASSES), ["inputs", "labels"], "expected rank 1 or rank 3, got shape [2, 2]"),
        ((LOGITS[0], CLASSES[[0, 1, 0]]), ["inputs", "labels"], "expected [2] or 1, got [3]"),
        ((LOGITS[:0], CLASSES[None]), ["inputs"], "no points"),
        ((LOGITS[0, 0, 0], CLASSES), ["inputs", "logits"], "expected rank 2 or rank 3"),
        ((LOGITS[0], CLASSES[:, :1]), ["inputs", "labels", 0], "that is [N], got [1]"),
        ((LOGITS[0], CLASSES + np.array([[0], [2]])), ["inputs", "labels", 1, 0], "got 3"),
        (
            (LOGITS[0], CLASSES, COTANGENTS[0, 0]),
            ["cotangent_vector", "loss"],
            "expected rank 2, got shape [2]",
        ),
        (
            (LOGITS[0], CLASSES, COTANGENTS[0, :, :1]),
            ["cotangent_vector", "loss", 0],
            "expected [2], got [1]",
        ),
        ((LOGITS[0, :1], CLASSES, COTANGENTS[0, :1]), ["inputs", "logits"], "expected axes [2] in front"),
        ((LOGITS[0, 0], CLASSES, COTANGENTS[0, :1]), ["inputs", "logits"], "has no axis for the points"),
    ],
)
def test_axes_in_front_that_do_not_fit(client: httpx.Client, arrays: Any, loc: list[Any], words: str):
    arrays = [np.ascontiguousarray(x, np.int32 if x.dtype.kind == "i" else np.float32) for x in arrays]
    endpoint = VJP if len(arrays) == 3 else "apply"
    [fault] = faults(send(client, "softmax_cross_entropy", endpoint, at_points(*arrays)))
    assert fault["loc"] == ["body", *loc]
    assert words in fault["msg"]


def test_calls_that_have_one_point(client: httpx.Client, plugged: httpx.Client):
    body = {**at_points(LOGITS[0], CLASSES), "jac_inputs": ["logits"], "jac_outputs": ["loss"]}
    [fault] = faults(send(client, "softmax_cross_entropy", "jacobian", body))
    assert "a Jacobian has one point" in fault["msg"]
    [fault] = faults(send(plugged, "apart", "apply", {"inputs": {"x": [[1]], "z": [[1, 2]]}}))
    assert "depend on values" in fault["msg"]
    [fault] = faults(send(client, "scale_gradient", "apply", {"inputs": {"x": [1], "scale": typed(np.ones(2))}}))
    assert "an attribute has one value in a call" in fault["msg"]


def test_the_outputs_at_all_points_are_limited(serve: Any):
    rois = np.tile(np.array([[0, 0, 0, 1, 1]], np.float32), (500, 1, 1))
    inputs = {"features": typed(np.ones((1, 1, 2, 2, 1), np.float32)), "rois": typed(rois)}
    attrs = {"pooled_height": 64, "pooled_width": 64, "spatial_scale": 1.0}
    with serve(MAX_ELEMENTS=str(1 << 20)).client() as client:
        [fault] = faults(send(client, "roi_pool", "apply", {"inputs": {**inputs, **attrs}}))
    assert "at most 1048576 elements" in fault["msg"]


def faults(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the errors of a document, in the form of the client's validation."""
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/json"
    document = json.loads(response.content.decode(), parse_constant=lambda word: 1 / 0)
    assert list(document) == ["detail"]
    assert 0 < len(document["detail"]) <= MAX_ENTRIES
    for fault in document["detail"]:
        assert list(fault) == ["type", "loc", "msg", "input", "ctx"]
        assert type(fault["ctx"]) is dict
        assert len(fault["msg"]) <= 2 * MAX_TEXT + MAX_GOT + 20
        assert fault["msg"].isprintable()
        assert all(type(part) in (str, int) and len(str(part)) <= MAX_GOT for part in fault["loc"])
        assert not SECRET.search(fault["msg"])
    return document["detail"]


CALL = {"inputs": {"x": X}}
PULL = {**CALL, "vjp_inputs": ["x"], "vjp_outputs": ["y"], "cotangent_vector": {"y": [1, 2]}}
PUSH = {**CALL, "jvp_inputs": ["x"], "jvp_outputs": ["y"], "tangent_vector": {"x": [1, 2]}}
ROWS = {**CALL, "jac_inputs": ["x"], "jac_outputs": ["y"]}
LABELS = {"shape": [1], "dtype": "int64", "data": {"buffer": [0], "encoding": "json"}}
EIG = {"inputs": {"a": [[1, 0], [0, 2]]}, "vjp_inputs": ["a"], "vjp_outputs": ["w", "v"]}


def x_of(**fields: Any) -> dict[str, Any]:
    return {"inputs": {"x": {**X, **fields}}}


def data_of(**fields: Any) -> dict[str, Any]:
    return x_of(data={**X["data"], **fields})


# fmt: off
WRONG = [
    ("square/apply", [], [], "an object"),
    ("square/apply", {}, ["inputs"], "missing"),
    ("square/apply", {**CALL, "mode": "eager"}, ["mode"], "one of inputs"),
    ("square/apply", {"inputs": [1]}, ["inputs"], "got a list of 1"),
    ("square/apply", {"inputs": {}}, ["inputs", "x"], "missing"),
    ("square/apply", {"inputs": {"x": X, "xx": 1}}, ["inputs", "xx"], "such as x"),
    ("square/apply", {"inputs": {"x": None}}, ["inputs", "x"], "got null"),
    ("square/apply", {"inputs": {"x": [[1], [2, 3]]}}, ["inputs", "x", 1], "a list of 1"),
    ("square/apply", {"inputs": {"x": {"shape": [2], "dtype": "float32"}}}, ["inputs", "x", "data"], "missing"),
    ("square/apply", x_of(more=1), ["inputs", "x", "more"], "unknown field"),
    ("square/apply", x_of(object_type="list"), ["inputs", "x", "object_type"], '"array"'),
    ("relu/apply", x_of(dtype="int32"), ["inputs", "x", "dtype"], "float64, got int32"),
    ("square/apply", x_of(dtype=["float32"]), ["inputs", "x", "dtype"], "got a list of 1"),
    ("square/apply", x_of(shape=[3]), ["inputs", "x", "data", "buffer"], "a flat list of 3"),
    ("square/apply", x_of(shape=2), ["inputs", "x", "shape"], "a list of integers"),
    ("square/apply", x_of(shape=[-2]), ["inputs", "x", "shape", 0], "got -2"),
    ("square/apply", x_of(data=[1, 2]), ["inputs", "x", "data"], "got a list of 2"),
    ("square/apply", x_of(data={"buffer": [1, 2]}), ["inputs", "x", "data", "encoding"], "missing"),
    ("square/apply", data_of(buffer=[1, "a"]), ["inputs", "x", "data", "buffer", 1], "expected a number, or "),
    ("square/apply", data_of(buffer=[1, 1e60]), ["inputs", "x", "data", "buffer", 1], "overflows float32"),
    ("square/apply", data_of(more=1), ["inputs", "x", "data", "more"], "one of buffer"),
    ("square/apply", data_of(encoding="binref"), ["inputs", "x", "data", "encoding"], "in the request body"),
    ("square/apply", data_of(encoding="cuda_ipc"), ["inputs", "x", "data", "encoding"], '"cuda_ipc"'),
    ("square/apply", data_of(encoding=["raw"]), ["inputs", "x", "data", "encoding"], "got a list of 1"),
    ("square/apply", x_of(data={**BASE64, "compression": "lz4"}), ["inputs", "x", "data", "compression"], "lz4"),
    ("square/apply", x_of(data={**BASE64, "buffer": "AACAPw=="}), ["inputs", "x", "data", "buffer"], "12 char"),
    ("square/apply", x_of(data={**BASE64, "buffer": "AACAPwAAAEA*"}), ["inputs", "x", "data", "buffer"], "invalid"),
    ("square/apply", x_of(data={**BASE64, "buffer": [1]}), ["inputs", "x", "data", "buffer"], "a string"),
    ("scale_gradient/apply", {"inputs": {"x": 1, "scale": "a"}}, ["inputs", "scale"], "number"),
    ("scale_gradient/apply", {"inputs": {"x": 1, "scael": 1}}, ["inputs", "scael"], "such as scale"),
    ("scale_gradient/apply", {"inputs": {"x": 1, "scale": X}}, ["inputs", "scale", "shape"], "expected []"),
    ("scale_gradient/apply", {"inputs": {"x": 1, "scale": {**X, "dtype": 3}}}, ["inputs", "scale", "dtype"], "got 3"),
    ("softmax_cross_entropy/apply", {"inputs": {"logits": [[1, 2]], "labels": LABELS}}, ["inputs", "labels", "dtype"],
     "expected one of int32, got int64"),
    ("softmax_cross_entropy/apply", {"inputs": {"logits": [[1, 2]], "labels": [7]}}, ["inputs", "labels", 0], "got 7"),
    ("softmax_cross_entropy/apply", {"inputs": {"logits": [[1, 2]], "labels": [0, 1]}}, ["inputs", "labels"], "[N]"),
    (f"square/{VJP}", {**PULL, "vjp_inputs": []}, ["vjp_inputs"], "some of x"),
    (f"square/{VJP}", {**PULL, "vjp_inputs": "x"}, ["vjp_inputs"], "a list"),
    (f"square/{VJP}", {**PULL, "vjp_inputs": ["x", 3]}, ["vjp_inputs", 1], "got 3"),
    (f"square/{VJP}", {**PULL, "vjp_inputs": ["x", "x"]}, ["vjp_inputs", 1], "duplicate name"),
    (f"square/{VJP}", {**PULL, "vjp_inputs": ["xx"]}, ["vjp_inputs", 0], "such as x"),
    (f"square/{VJP}", {**PULL, "vjp_inputs": ["x"] * 65}, ["vjp_inputs"], "at most 64"),
    (f"square/{VJP}", {**PULL, "vjp_outputs": ["z"]}, ["vjp_outputs", 0], "one of y"),
    (f"square/{VJP}", {**PULL, "cotangent_vector": {}}, ["cotangent_vector", "y"], "missing"),
    (f"square/{VJP}", {**PULL, "cotangent_vector": [1, 2]}, ["cotangent_vector"], "with y"),
    (f"square/{VJP}", {**PULL, "cotangent_vector": {"y": 1, "z": 1}}, ["cotangent_vector", "z"], "one of y"),
    (f"square/{VJP}", {**PULL, "cotangent_vector": {"y": [1]}}, ["cotangent_vector", "y"], "expected [2], got [1]"),
    (f"square/{VJP}", {**PULL, "cotangent_vector": {"y": {**X, "dtype": "float64"}}},
     ["cotangent_vector", "y", "dtype"], "not cast"),
    (f"self_adjoint_eig/{VJP}", {**EIG, "cotangent_vector": {"w": [1, 1]}}, ["cotangent_vector", "v"], "missing"),
    (f"square/{JVP}", {**PUSH, "tangent_vector": {"x": [1, 2, 3]}}, ["tangent_vector", "x"], "expected [2]"),
    (f"square/{JVP}", {**PUSH, "tangent_vector": {"y": [1, 2]}}, ["tangent_vector", "y"], "one of x"),
    (f"square/{JVP}", {**PUSH, "jvp_outputs": ["x"]}, ["jvp_outputs", 0], "one of y"),
    ("square/jacobian", {**ROWS, "jac_inputs": ["y"]}, ["jac_inputs", 0], "one of x"),
    ("square/jacobian", {**ROWS, "jac_outputs": []}, ["jac_outputs"], "some of y"),
    ("square/jacobian", {**ROWS, "vjp_inputs": ["x"]}, ["vjp_inputs"], "unknown field"),
    ("zero_out/jacobian", {**ROWS, **x_of(dtype="int32")}, ["jac_inputs", 0],
     "a name that is differentiable in int32 (none)"),
    ("square/abstract_eval", {"inputs": {"x": {"shape": [1]}}}, ["inputs", "x", "dtype"], "missing"),
    ("square/abstract_eval", {"inputs": {"x": {"shape": [1.5], "dtype": "float32"}}}, ["inputs", "x", "shape", 0], ""),
    ("relu/abstract_eval", {"inputs": {"x": {"shape": [1], "dtype": "int8"}}}, ["inputs", "x", "dtype"], "int8"),
    ("square/abstract_eval", {"inputs": {"x": X, "y": 1}}, ["inputs", "y"], "unknown field"),
    ("square/abstract_eval", {"inputs": 3}, ["inputs"], "an object"),
    ("square/abstract_eval", {}, ["inputs"], "missing"),
    ("roi_pool/abstract_eval",
     {"inputs": {"features": [[[[1]]]], "rois": [[0, 0, 0, 1, 1]], "pooled_width": {"shape": [], "dtype": "int8"}}},
     ["inputs", "pooled_width", "data"], "missing"),
    ("softmax_cross_entropy/abstract_eval",
     {"inputs": {"logits": {"shape": [2, 3], "dtype": "float32"}, "labels": {"shape": [3], "dtype": "int32"}}},
     ["inputs", "labels"], "expected [2]"),
]
# fmt: on


@pytest.mark.parametrize(("endpoint", "body", "loc", "words"), WRONG)
def test_errors_use_the_clients_names(client: httpx.Client, endpoint: str, body: Any, loc: list[str | int], words: str):
    op, _, last = endpoint.partition("/")
    found = faults(send(client, op, last, body))[0]
    assert found["type"] == "value_error"
    assert found["loc"] == ["body", *loc], found
    assert words in found["msg"], found
    assert f"expected {found['ctx']['expected']}, got {found['ctx']['got']}" in found["msg"]


def test_two_dtypes_are_refused(plugged: httpx.Client):
    inputs = {"x": X, "z": {**X, "dtype": "float64"}}
    [fault] = faults(send(plugged, "squares", "apply", {"inputs": inputs}))
    assert fault["loc"] == ["body", "inputs", "z"]
    assert "expected float32, as for x, got float64" in fault["msg"]


def test_all_errors_are_reported(client: httpx.Client):
    found = faults(send(client, "square", "apply", {"inputs": {f"x{i}": 1 for i in range(30)}}))
    assert len(found) == MAX_ENTRIES
    found = faults(send(client, "square", "apply", {"inputs": {"x" * 900: 1}}))
    assert len(found) == 2


@pytest.mark.parametrize("body", [b"", b"{", b'{"inputs": {"x": NaN}}', b"\xff", b'{"a": 1, "a": 2}', b"[" * 100_001])
def test_malformed_json_is_reported(client: httpx.Client, body: bytes):
    [fault] = faults(client.post("/tesseract/square/apply", content=body, headers=JSON))
    assert (fault["type"], fault["loc"]) == ("json_invalid", ["body"])
    assert fault["msg"]


def sentence(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert list(document) == ["detail"]
    assert type(document["detail"]) is str
    assert not SECRET.search(document["detail"])
    return document["detail"]


def test_other_errors_are_one_sentence(plugged: httpx.Client):
    assert "did you mean square" in sentence(send(plugged, "sqare", "apply", CALL), 404)
    assert "apply" in sentence(send(plugged, "square", "aply", CALL), 404)
    assert VJP in sentence(send(plugged, "clip_gradient", JVP, PUSH), 404)
    assert "unknown endpoint" in sentence(plugged.get("/tesseract/square"), 404)
    assert "unknown op" in sentence(plugged.get("/tesseract/"), 404)
    response = plugged.get("/tesseract/square/apply")
    assert "expected POST" in sentence(response, 405)
    assert response.headers["allow"] == "POST"
    assert "expected GET" in sentence(send(plugged, "square", "health", None), 405)
    for accept in ("text/html", "application/json+binref"):
        assert accept in sentence(send(plugged, "square", "apply", CALL, {**JSON, "accept": accept}), 406)
    response = send(plugged, "square", "apply", CALL, {"content-type": "text/plain"})
    assert "application/json" in sentence(response, 415)
    pull = {"inputs": {"x": [1, 2]}, "vjp_inputs": ["x"], "vjp_outputs": ["y"], "cotangent_vector": {"y": [1, 2]}}
    assert "bare_none" in sentence(send(plugged, "bare_none", VJP, pull), 500)
    headers = {**JSON, "pullback-deadline-ms": "50"}
    assert "deadline" in sentence(send(plugged, "sleepy", "apply", {"inputs": {"x": 0.5}}, headers), 504)


def test_a_header_error_is_not_a_field_error(client: httpx.Client):
    [fault] = faults(send(client, "square", "apply", CALL, {**JSON, "pullback-deadline-ms": "soon"}))
    assert fault["loc"] == ["header", "Pullback-Deadline-Ms"]


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PullbackError)],
)
def test_every_error_class_has_a_document(kind: type[errors.PullbackError]):
    error = kind("a {x}" * 200) if kind is not errors.Unprocessable else errors.wrong((), "m", expected="e", got="g")
    status, media_type, document = dialect(error, "/tesseract/square/apply")
    is_list = kind in (errors.Malformed, errors.Unprocessable)
    assert (status, media_type) == (422 if is_list else kind.status, "application/json")
    assert type(document["detail"]) is (list if is_list else str)
    assert len(json.dumps(document)) < 3 * MAX_TEXT


def test_limit_errors_have_the_protocols_format_and_the_protocol_can_be_disabled(serve):
    with serve(MAX_JSON_MB="1").client() as client:
        response = send(client, "square", "apply", {"inputs": {"x": [1.0] * (1 << 19)}})
        assert "1 MiB" in sentence(response, 413) or "MB" in sentence(response, 413)
    with serve(PROTOCOLS="umbridge").client() as client:
        problem(send(client, "square", "apply", CALL), 404)


def test_requests_are_counted_as_native_ones(client: httpx.Client):
    before = counts(client)
    for endpoint, body in (("apply", CALL), (VJP, PULL), (JVP, PUSH), ("jacobian", ROWS), ("abstract_eval", CALL)):
        assert send(client, "square", endpoint, body).status_code == 200
    faults(send(client, "square", VJP, {}))
    client.get("/tesseract/square/health")
    after = counts(client)
    assert {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)} == {
        ("square", "forward", "200"): 1,
        ("square", "vjp", "200"): 1,
        ("square", "vjp", "422"): 1,
        ("square", "jvp", "200"): 1,
        ("square", "jacobian", "200"): 1,
        ("", "catalogue", "200"): 1,
    }


def counts(client: httpx.Client) -> dict[tuple[str, str, str], float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = next(family.samples for family in families if family.name == "pullback_requests")
    return {(s.labels["op"], s.labels["operation"], s.labels["status"]): s.value for s in samples}


def test_large_bodies_give_the_same_response(client: httpx.Client):
    x = np.linspace(-3, 3, 40_000, dtype=np.float32)
    lists = {**X, "shape": [200, 200], "data": {"buffer": x.tolist(), "encoding": "json"}}
    wanted = (x * x).reshape(200, 200)
    for one in (typed(x.reshape(200, 200)), lists, x.reshape(200, 200).tolist()):
        same(result_of(client, "square", "apply", {"inputs": {"x": one}}), {"y": wanted})
    body = {"inputs": {"x": typed(x)}, "vjp_inputs": ["x"], "vjp_outputs": ["y"], "cotangent_vector": {"y": typed(x)}}
    same(result_of(client, "square", VJP, body), {"x": x * (2 * x)})
    [fault] = faults(send(client, "square", "apply", x_of(shape=[3], data={**BASE64, "buffer": "A" * (1 << 17)})))
    assert fault["loc"] == ["body", "inputs", "x", "data", "buffer"]


@pytest.mark.parametrize("field", ["inputs", "tangent_vector", "cotangent_vector"])
def test_only_tensors_take_the_fast_path(field: str):
    def found(body: Any) -> Any:
        return fast_json.parse(json.dumps(body).encode(), partial(places, OPS["scale_gradient"]))

    numbers, text = [0.5] * (1 << 14), "A" * (1 << 16)
    assert type(found({field: {"x": numbers}})[field]["x"]) is Numbers
    assert (
        type(found({field: {"x": {"data": {"buffer": numbers, "encoding": "raw"}}}})[field]["x"]["data"]["buffer"])
        is Numbers
    )
    assert (
        type(found({field: {"x": {"data": {"buffer": text, "encoding": "base64"}}}})[field]["x"]["data"]["buffer"])
        is Decoded
    )
    # Nowhere else: the readers of other fields do not support it.
    for body in (
        {field: {"scale": numbers}},
        {field: {"x": {"data": {"buffer": text, "encoding": "json"}}}},
        {field: {"x": {"data": {"buffer": numbers, "encoding": "base64"}}}},
        {field: {"x": {"data": numbers}}},
        {field: numbers},
    ):
        assert found(body) == body


def test_an_op_without_gradient_or_known_shapes_offers_fewer_endpoints():
    """Only the endpoints that can answer are offered."""

    assert set(names(an_op(differentiable=False))) == {"apply", "abstract_eval", "health", "openapi.json"}
    assert set(names(an_op(shape=("K",)))) == {*NATIVE, "health", "openapi.json"}


def an_op(**output: Any) -> Op:
    def same_again(x: Any) -> Any:
        return x

    return Op(
        name="mine",
        summary="",
        doc="",
        function=custom_gradient(same_again, lambda x, dy: dy),
        reference=same_again,
        inputs=(Input("x", shape=("N",)),),
        outputs=(Output("y", **{"shape": ("N",), **output}),),
        mechanism="custom_gradient",
        source="",
        examples=(Example("one", {"x": [1.0]}),),
    )
