"""Binary tensors over HTTP: requests and responses match JSON bit for bit, and so do the errors."""

import base64
import json
import socket
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

from tests.http.native_client import BINARY, JSON, array, ask, fault, post, problem
from tests.patience import PATIENCE_S

FIELDS = ("inputs", "cotangents", "tangents", "vectors")
BFLOAT16 = np.dtype(getattr(ml_dtypes, "bfloat16"))  # noqa: B009
SPELLINGS = {
    "F16": np.float16,
    "BF16": BFLOAT16,
    "F32": np.float32,
    "F64": np.float64,
    "I32": np.int32,
    "I64": np.int64,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
SQUARE = "/v1/ops/square/forward"


def spelling(dtype: np.dtype) -> str:
    return next(word for word, known in SPELLINGS.items() if np.dtype(known) == dtype)


def encode(tensors: dict[str, np.ndarray], **fields: Any) -> bytes:
    """Return a request in the published format, with an unpadded header."""
    header: dict[str, Any] = {"__metadata__": {"pullback": json.dumps(fields)}} if fields else {}
    data = b""
    for name, value in tensors.items():
        offsets = [len(data), len(data) + value.nbytes]
        header[name] = {"dtype": spelling(value.dtype), "shape": list(value.shape), "data_offsets": offsets}
        data += value.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def decode(body: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors and the metadata of a response, after checking its alignment and layout."""
    length = int.from_bytes(body[:8], "little")
    assert (8 + length) % 64 == 0
    header = json.loads(body[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = np.frombuffer(body[8 + length :][begin:end], SPELLINGS[entry["dtype"]]).reshape(entry["shape"])
    return found, json.loads(metadata["pullback"]) if metadata else {}


def flat(tree: Any, *path: str) -> dict[str, np.ndarray]:
    """Return the tensors of a JSON response by their paths."""
    if tree is None:
        return {}
    if isinstance(tree, dict) and "dtype" in tree:
        return {"/".join(path): array(tree)}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree, 1)
    return {name: value for key, below in items for name, value in flat(below, *path, str(key)).items()}


def binary(client: httpx.Client, to: str, content: bytes, accept: str = BINARY) -> httpx.Response:
    return client.post(f"/v1/ops/{to}", content=content, headers={"content-type": BINARY, "accept": accept})


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape), name
        assert found[name].tobytes() == value.tobytes(), name


def in_json(tensors: dict[str, np.ndarray], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the same request in JSON, with tensors in base64 in the request and the response."""
    body: dict[str, Any] = {**fields, "encoding": "base64"}
    for path, value in tensors.items():
        field, name = path.split("/")
        text = base64.b64encode(value.tobytes()).decode()
        body.setdefault(field, {})[name] = {"dtype": value.dtype.name, "shape": list(value.shape), "base64": text}
    return body


PATHS = [
    ("square/forward", {}, {"outputs/y"}),
    ("square/gradients", {"order": 2}, {"outputs/y", "gradients/1/x", "gradients/2/x"}),
    ("square/vjp", {}, {"gradients/x"}),
    ("square/vjp", {"outputs": True}, {"outputs/y", "gradients/x"}),
    ("square/jvp", {"tangents": {"x": [1, 2]}}, {"tangents/y"}),
    ("square/jacobian", {}, {"jacobian/y/x"}),
    ("square/hvp", {"vectors": {"x": [1, 2]}}, {"products/x"}),
    ("square/hessian", {}, {"hessian/x/x"}),
    ("square/hessian", {"diagonal": True}, {"diagonal/x"}),
]


@pytest.mark.parametrize(("to", "fields", "names"), PATHS)
def test_tensors_are_named_by_their_paths(client: httpx.Client, to: str, fields: dict, names: set[str]):
    x = np.float32([1, 2])
    found, metadata = decode(binary(client, to, encode({"inputs/x": x}, **fields)).content)
    assert (set(found), metadata) == (names, {})
    if to == "square/gradients":
        assert found["gradients/1/x"].tolist() == [2, 4]
        assert found["gradients/2/x"].tolist() == [2, 2]


def test_absent_derivatives_are_omitted_with_a_reason(client: httpx.Client):
    tensors = {"inputs/logits": np.zeros((1, 2), np.float32), "inputs/labels": np.int32([1])}
    for operation, absent in (
        ("vjp", {"labels": "not_differentiable"}),
        ("gradients", [{"labels": "not_differentiable"}]),
        ("jacobian", {"loss": {"labels": "not_differentiable"}}),
    ):
        found, metadata = decode(binary(client, f"softmax_cross_entropy/{operation}", encode(tensors)).content)
        assert metadata == {"absent": absent}
        assert not any("labels" in name for name in found)
    found, metadata = decode(binary(client, "softmax_cross_entropy/vjp", encode(tensors, wrt=["labels"])).content)
    assert (found, metadata) == ({}, {"absent": {"labels": "not_differentiable"}})
    found, metadata = decode(binary(client, "softmax_cross_entropy/vjp", encode(tensors, wrt=["logits"])).content)
    assert metadata == {}
    np.testing.assert_allclose(found["gradients/logits"], [[0.5, -0.5]], rtol=1e-7)
    found, metadata = decode(binary(client, "square/gradients", encode({"inputs/x": np.float32(3)}, order=3)).content)
    assert metadata == {"absent": [{}, {}, {"x": "disconnected"}]}
    assert set(found) == {"outputs/y", "gradients/1/x", "gradients/2/x"}


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32, np.float64, np.int32, np.int64, np.uint8])
def test_every_dtype_and_shape_round_trips(client: httpx.Client, dtype: Any):
    for value in ([1, 2, 3], [[1], [2]], 3, [], [[], []], np.arange(500)):
        x = np.array(value).astype(dtype) % 5
        body = encode({"inputs/x": x}, dtype=x.dtype.name)
        found, _ = decode(binary(client, "square/forward", body).content)
        assert_same(found, {"outputs/y": (x * x).astype(dtype)})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats_keep_every_bit(client: httpx.Client, dtype: str):
    bits = np.arange(2**16, dtype=np.uint16).view(BFLOAT16 if dtype == "bfloat16" else np.float16)
    x = bits[np.isfinite(bits.astype(np.float32))]
    body = encode({"inputs/x": x}, dtype=dtype, attrs={"by": "none"})
    found, _ = decode(binary(client, "clip_gradient/forward", body).content)
    assert_same(found, {"outputs/y": x})


def test_formats_mix(client: httpx.Client):
    x = np.float32([1, 2])
    body, text = encode({"inputs/x": x}), json.dumps({"inputs": {"x": [1, 2]}, "encoding": "base64"})
    in_text = binary(client, "square/forward", body, accept="application/json")
    assert in_text.headers["content-type"] == "application/json"
    assert in_text.json() == ask(client, "square", "forward", inputs={"x": [1, 2]})
    response = client.post(SQUARE, content=text, headers=JSON | {"accept": BINARY})
    assert response.headers["content-type"] == BINARY
    assert_same(decode(response.content)[0], {"outputs/y": x * x})
    body = encode({"inputs/x": x}, tangents={"x": [1, {}]})
    assert fault(binary(client, "square/jvp", body))["loc"] == ["tangents", "x", 1]
    body = encode({"inputs/x": x}, tangents={"x": [1, 3]}, encoding="flat")
    assert decode(binary(client, "square/jvp", body).content)[0]["tangents/y"].tolist() == [2, 12]
    body = encode({}, inputs={"x": [1, 3]})
    assert decode(binary(client, "square/forward", body).content)[0]["outputs/y"].tolist() == [1, 9]


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        (BINARY, BINARY),
        (BINARY.upper(), BINARY),
        (f"{BINARY}, */*", BINARY),
        (f"*/*, {BINARY}", BINARY),
        (f"text/html, {BINARY};v=1", BINARY),
        (f"{BINARY}, application/json", BINARY),
        (f"application/json, {BINARY}", "application/json"),
        (f"application/json;q=0.5, {BINARY}", BINARY),
        (f"{BINARY};q=0.5, application/json", "application/json"),
        (f"{BINARY};q=0.5, */*;q=0.1", BINARY),
        (f"{BINARY};q=0, */*", "application/json"),
        ("application/json;q=0, */*", BINARY),
        ("application/*;q=0, */*", None),
        (f"{BINARY};q=0", None),
        (f"{BINARY};q=0.000, application/json;q=0.0", None),
        ("application/safetensors", None),
        ("application/jsonx", None),
        ("text/html, Application/JSON;q=0.1", "application/json"),
    ],
)
def test_the_client_chooses_the_format(client: httpx.Client, accept: str | None, chosen: str | None):
    request = client.build_request("POST", SQUARE, content=b'{"inputs":{"x":1}}', headers=JSON)
    del request.headers["accept"]
    if accept is not None:
        request.headers["accept"] = accept
    response = client.send(request)
    if chosen:
        assert (response.status_code, response.headers["content-type"]) == (200, chosen)
    else:
        assert f"expected Accept: application/json or {BINARY}, got " in problem(response, 406)["detail"]


def test_the_checks_accept_only_json(client: httpx.Client):
    body = encode({"inputs/x": np.float32([1])})
    for path in ("/v1/ops/square/check", "/v1/ops/square/verify", "/v1/checks"):
        detail = problem(client.post(path, content=body, headers={"content-type": BINARY}), 415)["detail"]
        assert detail == f"expected Content-Type: application/json, got {BINARY}"
    problem(client.post("/v1/ops/square/check", json={}, headers={"accept": BINARY}), 406)


X = np.float32([1, 2])
WRONG = [
    ("square/forward", {"inputs/x": np.float64([1])}, {}, ["inputs", "x", "dtype"], '"float32"', '"float64"'),
    ("square/forward", {"inputs/x": X}, {"dtype": "bfloat16"}, ["inputs", "x", "dtype"], '"bfloat16"', '"float32"'),
    ("square/forward", {"inputs/y": X}, {}, ["inputs", "y"], "x", "y"),
    ("square/forward", {"inputs/x": X}, {"model": 1}, ["model"], "mode", "model"),
    ("square/forward", {"inputs/x": X}, {"mode": "fast"}, ["mode"], "eager", "fast"),
    ("square/forward", {"inputs/x": X}, {"encoding": "hex"}, ["encoding"], "base64", "hex"),
    ("square/forward", {"inputs/x": X, "tangents/x": X}, {}, ["tangents"], "", "tangents"),
    ("square/forward", {}, {}, ["inputs"], "the field inputs", "nothing"),
    ("square/jvp", {"inputs/x": X}, {}, ["tangents"], "the field tangents", "nothing"),
    ("square/vjp", {"inputs/x": X, "cotangents/y": np.float32([1])}, {}, ["cotangents", "y"], "[2]", "[1]"),
    ("safe_norm/forward", {"inputs/x": np.float32(1)}, {}, ["inputs", "x"], "[..., N]", "[]"),
    ("square/jacobian", {"inputs/x": np.zeros(6000, np.float32)}, {}, ["inputs"], "4194304 elements", "36000000"),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case[0]}-{'.'.join(case[3])}-{case[5]}")
def test_errors_match_those_of_json(client: httpx.Client, case: tuple):
    to, tensors, fields, loc, expected, got = case
    response = binary(client, to, encode(tensors, **fields))
    entry = fault(response)
    assert entry["loc"] == loc
    assert expected in entry["expected"]
    assert got in entry["got"]
    fields = {"encoding": "base64"} | fields
    assert post(client, *to.split("/"), **(in_json(tensors, {}) | fields)).json() == response.json()


def test_malformed_safetensors_are_400(client: httpx.Client):
    right = encode({"inputs/x": X})
    for body, reason in (
        (b"", "got 0"),
        (b'{"inputs":{"x":[1,2]}}', "at most 1048576 bytes"),
        (right[:-1], "expected 8 bytes of data after the header (data_offsets), got 7"),
        (right + b"\0", "got 9"),
        (right[:20], "(from the first 8 bytes), got 12"),
        (right.replace(b"F32", b"F33"), "tensor inputs/x: expected a dtype of F16, BF16"),
        (right.replace(b"inputs/x", b"outputs/"), "expected a name such as inputs/x"),
    ):
        for accept in (BINARY, "application/json", "*/*"):
            document = problem(binary(client, "square/forward", body, accept), 400)
            assert reason in document["detail"]
            assert document["errors"] == []


def test_binary_labelled_as_json_is_400(client: httpx.Client):
    problem(client.post(SQUARE, content=encode({"inputs/x": X}), headers=JSON), 400)


def test_chunked_and_fragmented_bodies_are_read(client: httpx.Client, service):
    x = np.arange(300_000, dtype=np.float32)
    body = encode({"inputs/x": x})
    chunks = (body[i : i + 70_001] for i in range(0, len(body), 70_001))
    headers = {"content-type": BINARY, "accept": BINARY}
    for content in (body, chunks):
        response = client.post(SQUARE, content=content, headers=headers)
        assert int(response.headers["content-length"]) == len(response.content)
        assert_same(decode(response.content)[0], {"outputs/y": x * x})
    small = encode({"inputs/x": X})
    head = (
        f"POST {SQUARE} HTTP/1.1\r\nhost: [::1]\r\nconnection: close\r\ncontent-type: {BINARY}\r\naccept: {BINARY}\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(f"{head}content-length: {len(small)}\r\n\r\n".encode())
        for byte in small:
            sock.sendall(bytes([byte]))
        raw = b"".join(iter(lambda: sock.recv(1 << 16), b""))
    assert_same(decode(raw.partition(b"\r\n\r\n")[2])[0], {"outputs/y": X * X})


def test_a_large_response_of_many_tensors(client: httpx.Client):
    x = np.linspace(-1, 1, 200_000, dtype=np.float64)
    found, _ = decode(binary(client, "square/gradients", encode({"inputs/x": x}, order=2, dtype="float64")).content)
    assert_same(found, {"outputs/y": x * x, "gradients/1/x": 2 * x, "gradients/2/x": np.full_like(x, 2)})


def test_tensors_at_any_address(client: httpx.Client):
    for shift in range(8):
        body = encode({"inputs/x": np.float64([1, 2, 3])}, dtype="float64", attrs={"by": "none"})
        length = int.from_bytes(body[:8], "little") + shift
        body = length.to_bytes(8, "little") + body[8 : 8 + length - shift] + b" " * shift + body[8 + length - shift :]
        found, _ = decode(binary(client, "clip_gradient/vjp", body).content)
        assert found["gradients/x"].tolist() == [1, 1, 1]


def test_the_limit_of_binary_bodies_is_max_body(serve):
    with serve(MAX_JSON_MB="1", MAX_BODY_MB="2").client() as client:
        for mega, status in ((1.5, 200), (2, 413)):
            x = np.zeros(int(mega * (1 << 18)), np.float32)
            response = binary(client, "square/forward", encode({"inputs/x": x}))
            assert response.status_code == status
        document = problem(response, 413)
        assert "at most 2097152 bytes" in document["detail"]
