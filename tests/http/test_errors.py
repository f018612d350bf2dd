"""Every error over HTTP: its status, its location in the request, and the expected and actual values."""

import base64
import json
import socket
import time
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from tests.http.native_client import BINARY, JSON, MAX_ENTRIES, ask, fault, post, problem
from tests.patience import PATIENCE_S

SQUARE = "/v1/ops/square/forward"
RIGHT = {"inputs": {"x": [1, 2]}}
LABELLED = {"logits": [[0, 0], [1, 2]], "labels": [0, 1]}


class Wrong(NamedTuple):
    """A request that is valid JSON, and its error."""

    to: str
    body: Any
    loc: list[str | int]
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.to}-{'.'.join(map(str, self.loc))}-{self.got[:20]}"


def square(x: Any, *index: int, expected: str, got: str, **fields: Any) -> Wrong:
    """An invalid tensor, with the location of its error."""
    return Wrong("square/forward", {"inputs": {"x": x}, **fields}, ["inputs", "x", *index], expected, got)


def field(name: str, value: Any, expected: str, got: str, to: str = "square/vjp") -> Wrong:
    """A top-level field with an invalid value."""
    return Wrong(to, {**RIGHT, name: value}, [name], expected, got)


def typed(tensor: dict[str, Any], key: str, *index: int, expected: str, got: str) -> Wrong:
    """A typed tensor with an error below a key."""
    whole = {"dtype": "float32", "shape": [2], "data": [1, 2]} | tensor
    kept = {name: value for name, value in whole.items() if value is not ...}
    return Wrong("square/forward", {"inputs": {"x": kept}}, ["inputs", "x", key, *index], expected, got)


def attrs(to: str, given: dict[str, Any], name: str, expected: str, got: str, **fields: Any) -> Wrong:
    return Wrong(to, {**RIGHT, "attrs": given, **fields}, ["attrs", name], expected, got)


def deep(levels: int) -> Any:
    return 1.0 if levels == 0 else [deep(levels - 1)]


NUMBER = 'a number, or "NaN"'
# fmt: off
WRONG = [
    # The document.
    Wrong("square/forward", [], [], "an object", "list"),
    Wrong("square/forward", 3, [], "an object", "3"),
    Wrong("square/forward", None, [], "an object", "null"),
    Wrong("square/forward", "inputs", [], "an object", "inputs"),
    Wrong("square/forward", {}, ["inputs"], "inputs", "nothing"),
    Wrong("square/forward", {"inputs": [1, 2]}, ["inputs"], "an object", "a list of 2"),
    Wrong("square/forward", {"inputs": None}, ["inputs"], "an object", "null"),
    Wrong("square/forward", {**RIGHT, "imputs": 1}, ["imputs"], "inputs", "imputs"),
    Wrong("square/forward", {**RIGHT, "wrt": ["x"]}, ["wrt"], "", "wrt"),
    Wrong("square/forward", {**RIGHT, "Mode": "graph"}, ["Mode"], "mode", "Mode"),
    Wrong("square/hessian", {**RIGHT, "batched": True}, ["batched"], "", "batched"),
    Wrong("square/forward", {**RIGHT, "attrs": []}, ["attrs"], "an object", "a list of 0"),
    # Inputs.
    Wrong("square/forward", {"inputs": {"X": [1]}}, ["inputs", "X"], "x", "X"),
    Wrong("square/forward", {"inputs": {"x": [1], "": [1]}}, ["inputs", ""], "x", "nothing"),
    Wrong("square/forward", {"inputs": {}}, ["inputs"], "x", "none"),
    Wrong("softmax_cross_entropy/forward", {"inputs": {"logits": [[1]]}}, ["inputs"], "logits, labels", "logits"),
    Wrong("softmax_cross_entropy/forward", {"inputs": {"label": [1]}}, ["inputs", "label"], "labels", "label"),
    # Lists that are not tensors.
    square([[1, 2], [3]], 1, expected="a list of 2", got="a list of 1"),
    square([[1, 2], 3], 1, expected="a list of 2", got="3"),
    square([1, [2]], 1, expected="a number", got="a list of 1"),
    square([[[1], [2]], [[3], [4, 5]]], 1, 1, expected="a list of 1", got="a list of 2"),
    square(deep(9), expected="rank <= 8", got="higher rank"),
    # Values that are not numbers.
    square([1, None], 1, expected=NUMBER, got="null"),
    square([[1], [True]], 1, 0, expected=NUMBER, got="true"),
    square([0.5, "3"], 1, expected=NUMBER, got='"3"'),
    square("nan", expected=NUMBER, got='"nan"'),
    square(["inf"], 0, expected=NUMBER, got='"inf"'),
    square([{}], 0, expected=NUMBER, got="an object"),
    square(None, expected=NUMBER, got="null"),
    square(True, expected=NUMBER, got="true"),
    # Lossy casts.
    square([1, 3.5], 1, expected="an integer", got="3.5", dtype="int32"),
    square([1, 2.0**53], 1, expected="an integer", got="9007199254740992", dtype="int64"),
    square([300], 0, expected="from 0 to 255", got="300", dtype="uint8"),
    square([-1], 0, expected="from 0 to", got="-1", dtype="uint64"),
    square([2**31], 0, expected="2147483647", got="2147483648", dtype="int32"),
    square(["NaN"], 0, expected="an integer", got='"NaN"', dtype="int32"),
    square(["7", "07"], 1, expected="an integer, or a string of its digits", got='"07"', dtype="int32"),
    square(["1.0"], 0, expected="an integer, or a string of its digits", got='"1.0"', dtype="int32"),
    square(["\u0663"], 0, expected="an integer, or a string of its digits", got='"\u0663"', dtype="int32"),
    square(["2147483648"], 0, expected=f"an integer from {-(2**31)} to {2**31 - 1}", got="2147483648", dtype="int32"),
    square(["1"], 0, expected="Infinity", got='"1"', dtype="float32"),
    square([[1, 1e300]], 0, 1, expected="a magnitude below 3.4", got="1e+300"),
    square([70000], 0, expected="a magnitude below 65520", got="70000", dtype="float16"),
    square([1e39], 0, expected="a magnitude below 3.39", got="1e+39", dtype="bfloat16"),
    # Typed tensors are not cast, and must match their description.
    typed({"dtype": "float64"}, "dtype", expected='"float32"', got='"float64"'),
    typed({"dtype": "float31"}, "dtype", expected='"float32"', got='"float31"'),
    typed({"dtype": None}, "dtype", expected='"float32"', got="null"),
    typed({"dtype": ...}, "dtype", expected="dtype", got="nothing"),
    typed({"shape": ...}, "shape", expected="shape", got="nothing"),
    typed({"data": ...}, "data", expected='"data" or "base64"', got="neither"),
    typed({"base64": ""}, "base64", expected='"data" or "base64"', got="both"),
    typed({"values": [1]}, "values", expected="dtype, shape, data", got="values"),
    typed({"shape": [3]}, "data", expected="a flat list of 3", got="[2]"),
    typed({"shape": [1, 2], "data": [[1], [2]]}, "data", expected="nested as [1, 2]", got="[2, 1]"),
    typed({"shape": 2}, "shape", expected="a list", got="2"),
    typed({"shape": [-2]}, "shape", 0, expected="from 0", got="-2"),
    typed({"shape": [2.0]}, "shape", 0, expected="an integer", got="2.0"),
    typed({"shape": [True]}, "shape", 0, expected="an integer", got="true"),
    typed({"shape": [2**31]}, "shape", 0, expected="2147483647", got="2147483648"),
    typed({"shape": [1] * 9}, "shape", expected="rank <= 8", got="rank 9"),
    typed({"shape": [2**30, 2**30, 2**30]}, "shape", expected="2^63 bytes", got="elements"),
    typed({"data": [1, "2"]}, "data", 1, expected=NUMBER, got='"2"'),
    typed({"data": ..., "base64": "AACAPw=="}, "base64", expected="8 bytes", got="8 characters"),
    typed({"data": ..., "base64": "AACA*wAAgD8="}, "base64", expected="A-Z a-z 0-9", got=""),
    typed({"data": ..., "base64": [1]}, "base64", expected="a string", got="a list"),
    # Shapes.
    Wrong("softmax_cross_entropy/forward", {"inputs": {"logits": [1, 2], "labels": [0]}}, ["inputs", "logits"],
     "[N, C]", "[2]"),
    Wrong("softmax_cross_entropy/forward", {"inputs": {"logits": [[1, 2], [3, 4]], "labels": [0]}},
     ["inputs", "labels"], "[2]", "[1]"),
    Wrong("conv_eig/forward", {"inputs": {"x": [[[[1, 2]]]], "f": [[[[1, 2]]]]}}, ["inputs", "f"], "C = 2",
     "[1, 1, 1, 2]"),
    Wrong("self_adjoint_eig/forward", {"inputs": {"a": [[1, 2]]}}, ["inputs", "a"], "[..., M, M]", "[1, 2]"),
    Wrong("safe_norm/forward", {"inputs": {"x": 1}}, ["inputs", "x"], "[..., N]", "[]"),
    # Values that an op rejects.
    Wrong("self_adjoint_eig/vjp", {"inputs": {"a": [[1, 0], ["NaN", 1]]}}, ["inputs", "a", 1, 0], "finite", "nan"),
    Wrong("softmax_cross_entropy/vjp", {"inputs": {**LABELLED, "labels": [0, 2]}}, ["inputs", "labels", 1], "", "2"),
    # Attributes.
    attrs("gradient_reversal/vjp", {"strenght": 1}, "strenght", "strength", "strenght"),
    attrs("gradient_reversal/vjp", {"strength": -1}, "strength", "greater than or equal to 0", "-1"),
    attrs("gradient_reversal/vjp", {"strength": "1"}, "strength", "number", '"1"'),
    attrs("gradient_reversal/vjp", {"strength": True}, "strength", "number", "true"),
    attrs("gradient_reversal/vjp", {"strength": None}, "strength", "number", "null"),
    attrs("gradient_reversal/vjp", {"strength": "NaN"}, "strength", "number", "NaN"),
    attrs("gradient_reversal/vjp", {"strength": [1.0]}, "strength", "number", "a list of 1"),
    attrs("gradient_reversal/vjp", {"mechanism": "magic"}, "mechanism", "'override_map'", "magic"),
    attrs("scale_gradient/vjp", {"scale": 1e6}, "scale", "float16", "1000000", dtype="float16"),
    attrs("scale_gradient/vjp", {"scale": -1e39}, "scale", "bfloat16", "-1e+39", dtype="bfloat16"),
    attrs("clip_gradient/vjp", {"low": 1, "high": 0}, "low", "low <= high = 0", "1"),
    attrs("square/vjp", {"scale": 1}, "scale", "no names", "scale"),
    # The other common fields.
    field("dtype", "float31", "float32, float64", "float31"),
    field("dtype", 32, "string", "32"),
    Wrong("self_adjoint_eig/vjp", {"inputs": {"a": [[1]]}, "dtype": "float16"}, ["dtype"], "float64", "float16"),
    field("mode", "fast", "'eager'", "fast"),
    field("mode", "XLA", "'xla'", "XLA"),
    field("device", "tpu:0", "cpu", "tpu:0"),
    field("device", "gpu:99", "cpu", "gpu:99"),
    field("device", 0, "string", "0"),
    field("encoding", "hex", "'base64'", "hex"),
    field("order", 0, "greater than or equal to 1", "0", "square/gradients"),
    field("order", 5, "less than or equal to 4", "5", "square/gradients"),
    field("order", "2", "integer", '"2"', "square/gradients"),
    field("order", 1.5, "integer", "1.5", "square/gradients"),
    field("order", True, "integer", "true", "square/gradients"),
    field("order", None, "integer", "null", "square/gradients"),
    field("wrt", [], "x", "[]"),
    field("wrt", "x", "list", '"x"'),
    field("outputs", 1, "boolean", "1"),
    field("batched", "yes", "boolean", "yes"),
    field("diagonal", "true", "boolean", "true", "square/hessian"),
    Wrong("square/vjp", {**RIGHT, "wrt": ["x", "x"]}, ["wrt", 1], "once", "x"),
    Wrong("square/vjp", {**RIGHT, "wrt": ["y"]}, ["wrt", 0], "x", "y"),
    Wrong("square/vjp", {**RIGHT, "wrt": [0]}, ["wrt", 0], "string", "0"),
    Wrong("square/jacobian", {**RIGHT, "of": ["y", "y"]}, ["of", 1], "once", "y"),
    Wrong("square/jacobian", {**RIGHT, "of": ["x"]}, ["of", 0], "y", "x"),
    Wrong("square/jacobian", {**RIGHT, "of": []}, ["of"], "y", "[]"),
    Wrong("safe_norm/hessian", {"inputs": {"x": [1, 2]}, "diagonal": True}, ["diagonal"], "false", "true"),
    # Directions.
    Wrong("square/vjp", {**RIGHT, "cotangents": {"y": [1, 2, 3]}}, ["cotangents", "y"], "[2]", "[3]"),
    Wrong("square/vjp", {**RIGHT, "cotangents": {"y": 1}}, ["cotangents", "y"], "[2]", "[]"),
    Wrong("square/vjp", {**RIGHT, "cotangents": {"z": [1, 2]}}, ["cotangents", "z"], "y", "z"),
    Wrong("square/vjp", {**RIGHT, "cotangents": {"y": [1, None]}}, ["cotangents", "y", 1], NUMBER, "null"),
    Wrong("square/vjp", {**RIGHT, "cotangents": {}}, ["cotangents"], "y", "{}"),
    Wrong("square/vjp", {**RIGHT, "cotangents": [1, 2]}, ["cotangents"], "an object", "a list of 2"),
    Wrong("square/vjp", {**RIGHT, "cotangents": {"y": [1, 2]}, "dtype": "int32"}, ["cotangents", "y"],
     "nothing is differentiable in int32", "y"),
    Wrong("square/gradients", {**RIGHT, "cotangents": {"y": [1]}}, ["cotangents", "y"], "[2]", "[1]"),
    Wrong("square/hvp", {**RIGHT, "cotangents": {"y": [1]}, "vectors": {"x": [1, 2]}}, ["cotangents", "y"], "", "[1]"),
    Wrong("square/hessian", {**RIGHT, "cotangents": {"y": [1]}}, ["cotangents", "y"], "[2]", "[1]"),
    Wrong("square/jvp", RIGHT, ["tangents"], "tangents", "nothing"),
    Wrong("square/jvp", {**RIGHT, "tangents": {}}, ["tangents"], "x", "{}"),
    Wrong("square/jvp", {**RIGHT, "tangents": {"x": [1]}}, ["tangents", "x"], "[2]", "[1]"),
    Wrong("square/jvp", {**RIGHT, "tangents": {"y": [1, 2]}}, ["tangents", "y"], "x", "y"),
    Wrong("softmax_cross_entropy/jvp", {"inputs": LABELLED, "tangents": {"labels": [1, 1]}}, ["tangents", "labels"],
     "logits", "labels"),
    Wrong("square/hvp", RIGHT, ["vectors"], "vectors", "nothing"),
    Wrong("square/hvp", {**RIGHT, "vectors": {"x": [[1, 2]]}}, ["vectors", "x"], "[2]", "[1, 2]"),
    Wrong("softmax_cross_entropy/hvp", {"inputs": LABELLED, "vectors": {"labels": [1, 1]}}, ["vectors", "labels"],
     "logits", "labels"),
    Wrong("square/vjp", {**RIGHT, "batched": True}, ["cotangents"], "leading axis", "none"),
    Wrong("square/vjp", {**RIGHT, "batched": True, "cotangents": {"y": [1, 2]}}, ["cotangents", "y"],
     "[directions, 2]", "[2]"),
    Wrong("square/jvp", {**RIGHT, "batched": True, "tangents": {"x": [[1], [2]]}}, ["tangents", "x"],
     "[directions, 2]", "[2, 1]"),
    Wrong("square/hvp", {"inputs": {"x": 1}, "batched": True, "vectors": {"x": 1}}, ["vectors", "x"], "[directions]",
     "[]"),
    Wrong("self_adjoint_eig/vjp",
     {"inputs": {"a": [[1]]}, "batched": True, "cotangents": {"w": [[1], [2]], "v": [[[1]]]}}, ["cotangents"],
     "the same number", "'w': 2"),
    # Gradients that are not linear maps.
    Wrong("clip_gradient/jvp", {**RIGHT, "tangents": {"x": [1, 2]}}, ["attrs"], "linear", "a non-linear gradient"),
]
# fmt: on


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_errors_are_named(client: httpx.Client, wrong: Wrong):
    response = client.post(f"/v1/ops/{wrong.to}", content=json.dumps(wrong.body), headers=JSON)
    document = problem(response, 422)
    entry = document["errors"][0]
    assert entry["loc"] == wrong.loc
    assert wrong.expected in entry["expected"]
    assert wrong.got in entry["got"]
    assert document["detail"].startswith(".".join(map(str, wrong.loc)))


def test_all_errors_are_named_at_once(client: httpx.Client):
    body = {"inputs": {"logits": [[1, "2"]], "label": [1]}, "mode": "graph"}
    entries = problem(post(client, "softmax_cross_entropy", "forward", **body), 422)["errors"]
    assert [entry["loc"] for entry in entries] == [["inputs", "logits", 0, 1], ["inputs", "label"]]
    entries = problem(post(client, "square", "gradients", **RIGHT, order=9, mode="fast", model=1), 422)["errors"]
    assert sorted(entry["loc"][0] for entry in entries) == ["mode", "model", "order"]


MALFORMED = {
    "empty": (b"", "empty"),
    "truncated": (b'{"inputs":{"x":[1,2', "truncated"),
    "bare NaN": (b'{"inputs":{"x":[NaN]}}', '"NaN"'),
    "not UTF-8": (b'{"inputs":{"\xff":[1]}}', "UTF-8"),
    "beyond float64": (b'{"inputs":{"x":[1e400]}}', "Infinity"),
    "a key twice": (b'{"inputs":{"x":[1],"x":[2]}}', '"x"'),
    "deeper than any": (b"[" * 2000 + b"]" * 2000, ""),
    "many brackets": (b'{"inputs":{"x":[' + b"[]," * 100_000 + b"[]]}}", "brackets"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_json_is_400(client: httpx.Client, name: str):
    body, word = MALFORMED[name]
    document = problem(client.post(SQUARE, content=body, headers=JSON), 400)
    assert word in document["detail"]
    assert document["errors"] == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/ops/squar/forward", ["squar", "square"]),
        ("/v1/ops/square/vpj", ["vpj", "vjp"]),
        ("/v1/ops/nothing_like_it/forward", ["nothing_like_it"]),
        ("/v1/ops/Square/forward", ["Square", "square"]),
        ("/v1/ops//forward", []),
        ("/v1/ops/square/", []),
        ("/v1/ops/square/forward/", []),
        ("/v1", []),
        ("/v3/models", []),
        ("/nowhere", ["/nowhere"]),
        ("/v1/ops/%00%0a%1b[31m/forward", []),
        ("/v1/ops/%ff/forward", []),
        ("/v1/ops/..%2f..%2fetc/forward", []),
    ],
)
def test_unknown_paths_and_names_are_404(client: httpx.Client, path: str, words: list[str]):
    document = problem(client.post(path, json=RIGHT), 404)
    assert all(word in document["detail"] for word in words)


def test_an_unknown_op_of_the_catalogue_is_404_with_similar_names(client: httpx.Client):
    assert "log1pexp" in problem(client.get("/v1/ops/log1pxp"), 404)["detail"]
    problem(client.get("/v1/ops/"), 404)


def test_a_broken_op_is_404_with_the_reason(plugged: httpx.Client):
    for response in (post(plugged, "broken", "forward", **RIGHT), plugged.get("/v1/ops/broken")):
        assert "nothing_of_this_name" in problem(response, 404)["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", SQUARE, {"POST"}),
        ("PUT", SQUARE, {"POST"}),
        ("POST", "/v1/ops", {"GET"}),
        ("POST", "/v1/ops/square", {"GET"}),
        ("DELETE", "/v1/ops/square", {"GET"}),
        ("POST", "/health/live", {"GET"}),
        ("PATCH", "/openapi.json", {"GET", "HEAD"}),
    ],
)
def test_another_method_is_405_with_allow(client: httpx.Client, method: str, path: str, allowed: set[str]):
    response = client.request(method, path)
    problem(response, 405)
    assert {name.strip() for name in response.headers["allow"].split(",")} >= allowed - {"HEAD"}
    assert client.get(path).status_code in (200, 405)


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ({}, "none"),
        ({"content-type": "text/plain"}, "text/plain"),
        ({"content-type": "application/x-www-form-urlencoded"}, "urlencoded"),
        ({**JSON, "content-encoding": "gzip"}, "gzip"),
    ],
)
def test_another_content_type_is_415(client: httpx.Client, headers: dict, word: str):
    detail = problem(client.post(SQUARE, content=json.dumps(RIGHT), headers=headers), 415)["detail"]
    assert word in detail
    assert "content-encoding" in headers or f"expected Content-Type: application/json or {BINARY}, got " in detail


def test_the_charset_of_json_is_ignored(client: httpx.Client):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post(SQUARE, content=json.dumps(RIGHT), headers=headers).status_code == 200


def base64_zeros(*shape: int) -> dict[str, Any]:
    text = base64.b64encode(np.zeros(shape, "<f4").tobytes()).decode()
    return {"dtype": "float32", "shape": list(shape), "base64": text}


@pytest.mark.parametrize(
    ("to", "body", "what"),
    [
        ("square/jacobian", {"inputs": {"x": base64_zeros(6000)}}, "jacobian"),
        ("square/hessian", {"inputs": {"x": base64_zeros(6000)}}, "hessian"),
        ("safe_norm/jacobian", {"inputs": {"x": base64_zeros(600, 300)}}, "jacobian"),
        ("safe_norm/hessian", {"inputs": {"x": base64_zeros(6000)}}, "hessian"),
        (
            "safe_norm/vjp",
            {"inputs": {"x": base64_zeros(6000)}, "cotangents": {"y": base64_zeros(6000)}, "batched": True},
            "gradients",
        ),
    ],
)
def test_a_too_large_response_is_refused_before_it_is_computed(client: httpx.Client, to: str, body: dict, what: str):
    began = time.monotonic()
    entry = fault(client.post(f"/v1/ops/{to}", json=body))
    assert time.monotonic() - began < 2
    assert entry["loc"] == ["inputs"]
    assert what in entry["message"]
    assert "at most 4194304 elements" in entry["expected"]
    assert int(entry["got"]) > 1 << 22


@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
def test_an_ops_own_check_is_422(plugged: httpx.Client, mode: str):
    document = problem(post(plugged, "positive", "vjp", inputs={"x": [1, -1]}, mode=mode), 422)
    assert "positive" in document["detail"]
    assert "x must be positive" in document["errors"][0]["message"]
    assert document["errors"][0]["loc"] == ["inputs"]
    assert ask(plugged, "positive", "forward", inputs={"x": [1, 2]}, mode=mode)["outputs"]["y"]["data"] == [1, 2]


@pytest.mark.parametrize(
    ("operation", "body", "loc", "expected"),
    [
        ("vjp", {"cotangents": {"index": 1}}, ["cotangents", "index"], "y"),
        ("jvp", {"tangents": {"hints": 1}}, ["tangents", "hints"], "hint"),
        ("hvp", {"vectors": {"x": [1, 2, 3]}, "cotangents": {"index": 1}}, ["cotangents", "index"], "y"),
    ],
)
def test_directions_belong_to_differentiable_tensors(
    plugged: httpx.Client, operation: str, body: dict, loc: list, expected: str
):
    entry = fault(post(plugged, "largest", operation, inputs={"x": [1, 3, 2], "hint": 0}, **body))
    assert entry["loc"] == loc
    assert expected in entry["expected"]


HUGE = "n" * 100_000
HOSTILE = ["\x00", "\n\r\t", "\x1b[31mred", "\u202e\u2066", "é" * 5000, HUGE, "\U0001f600" * 300, "a b", "__class__"]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:8]))
def test_hostile_names_are_abbreviated(client: httpx.Client, name: str):
    for body in (
        {**RIGHT, name: 1},
        {"inputs": {"x": [1], name: [1]}},
        {**RIGHT, "attrs": {name: 1}},
        {**RIGHT, "cotangents": {name: [1, 2]}},
        {**RIGHT, "wrt": [name]},
        {**RIGHT, "dtype": name},
        {**RIGHT, "mode": name},
        {**RIGHT, "device": name},
        {"inputs": {"x": {"dtype": name, "shape": [1], "data": [1]}}},
        {"inputs": {"x": {"dtype": "float32", "shape": [1], "data": [1], name: 1}}},
        {"inputs": {"x": [1, name]}},
    ):
        response = post(client, "square", "vjp", **body)
        problem(response, 422)
        assert len(response.content) < 16_000


def with_many(many: dict[str, int]) -> list[dict[str, Any]]:
    """Return requests with many names where few are expected."""
    return [{"inputs": {"x": [1], **many}}, {**RIGHT, **many}, {**RIGHT, "attrs": many}, {**RIGHT, "wrt": [*many]}]


def test_many_errors_are_abbreviated(client: httpx.Client):
    for body in with_many({f"name{i}": 1 for i in range(50)}):
        assert len(problem(post(client, "square", "vjp", **body), 422)["errors"]) == MAX_ENTRIES


def test_too_many_names_are_refused_without_checking_each(client: httpx.Client):
    for body in with_many({f"name{i}": 1 for i in range(50_000)}):
        [entry] = problem(post(client, "square", "vjp", **body), 422)["errors"]
        assert "at most" in entry["expected"]


@pytest.mark.parametrize("length", [1000, 8000, 30_000])
def test_a_long_path_is_abbreviated(client: httpx.Client, length: int):
    problem(client.post(f"/v1/ops/{'n' * length}/forward", json=RIGHT), 404)


def test_raw_bytes_in_names_are_handled(service):
    """Client libraries do not send such names."""
    for path in (b"/v1/ops/\xff\xfe/forward", b"/v1/ops/%ED%A0%80/forward", b"*", b"http://x/v1/ops/square/vpj"):
        with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as sock:
            head = b"POST %s HTTP/1.1\r\nhost: [::1]\r\nconnection: close\r\ncontent-type: application/json\r\n" % path
            sock.sendall(head + b"content-length: 2\r\n\r\n{}")
            raw = b"".join(iter(lambda: sock.recv(1 << 16), b""))
        top, _, body = raw.partition(b"\r\n\r\n")
        assert b"application/problem+json" in top
        assert json.loads(body)["status"] in (400, 404)


def test_the_service_survives(client: httpx.Client):
    assert ask(client, "square", "forward", **RIGHT)["outputs"]["y"]["data"] == [1, 4]
