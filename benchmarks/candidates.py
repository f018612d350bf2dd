"""The request to each server and its result: one VJP of y = log1p(e^x), in the server's fastest format."""

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import orjson

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
Format = Literal["JSON", "base64", "binary", "none"]

SAFETENSORS = "application/vnd.safetensors"
MOST_DRAWS, LEAST_DRAWS, MOST_NUMBERS = 1_000, 3, 500_000
VJP = "/v1/ops/log1pexp/vjp"


class Request(NamedTuple):
    """A POST."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Candidate:
    """One way to get the gradient: its server, the request for x and dy, and the reader of dx from the response.

    ``side`` is ours, a peer, or a limit that no server can exceed.
    """

    name: str
    title: str
    server: str
    format: Format
    side: Literal["ours", "peer", "limit"]
    request: Callable[[Array, Array], Request] = field(repr=False)
    gradient: Callable[[bytes], Array] | None = field(repr=False)


def numbers(n: int, draw: int = 0) -> tuple[Array, Array]:
    """Return x and dy, the same for the same draw; their texts have 1 to 9 digits after the point."""
    rng = np.random.default_rng((n, draw))
    return rounded(rng, 3, n), rounded(rng, 1, n)


def rounded(rng: np.random.Generator, scale: float, shape: int | tuple[int, ...]) -> Array:
    """Draw normal numbers whose texts have 1 to 9 digits after the point."""
    array, digits = rng.normal(0, scale, shape), rng.integers(1, 10, shape).astype(float)
    return (np.round(array * 10**digits) / 10**digits).astype(np.float32)


def draws(n: int) -> Iterator[tuple[Array, Array]]:
    """Yield many x and dy, all different, and fewer if they are large: a load must not repeat one body."""
    return (numbers(n, draw) for draw in range(min(MOST_DRAWS, max(LEAST_DRAWS, MOST_NUMBERS // n))))


def is_gradient(found: Array, x: Array, dy: Array) -> bool:
    """Return whether ``found`` is dy σ(x), in float32."""
    return found.shape == x.shape and np.allclose(found, dy / (1 + np.exp(-x.astype(float))), rtol=1e-5, atol=1e-6)


def _json(path: str, document: Any, **headers: str) -> Request:
    # Float32 numbers are written as briefly as possible: fewer bytes, for every server alike.
    body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return Request(path, {"Content-Type": "application/json", **headers}, body)


def _float32(numbers: Any) -> Array:
    return np.asarray(numbers, np.float32)


def _base64(array: Array) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _from_base64(text: str) -> Array:
    return np.frombuffer(base64.b64decode(text), np.float32)


def pullback_json(x: Array, dy: Array) -> Request:
    """Lists."""
    return _pullback(x, dy, encoding="nested")


def pullback_base64(x: Array, dy: Array) -> Request:
    """Bytes in base64."""
    tensors = ({"dtype": "float32", "shape": a.shape, "base64": _base64(a)} for a in (x, dy))
    return _pullback(*tensors, encoding="base64")


def _pullback(x: Any, dy: Any, *, encoding: str) -> Request:
    return _json(VJP, {"inputs": {"x": x}, "cotangents": {"y": dy}, "encoding": encoding})


def _pullback_data(answer: bytes) -> Array:
    return _float32(orjson.loads(answer)["gradients"]["x"]["data"])


def _pullback_bytes(answer: bytes) -> Array:
    return _from_base64(orjson.loads(answer)["gradients"]["x"]["base64"])


def pullback_safetensors(x: Array, dy: Array) -> Request:
    """The bytes of both, after a header."""
    size = x.nbytes
    spans = {"inputs/x": [0, size], "cotangents/y": [size, 2 * size]}
    slots = {name: {"dtype": "F32", "shape": x.shape, "data_offsets": span} for name, span in spans.items()}
    header = json.dumps(slots).encode()
    header = header.ljust(64 * math.ceil((8 + len(header)) / 64) - 8)
    body = len(header).to_bytes(8, "little") + header + x.tobytes() + dy.tobytes()
    return Request(VJP, {"Content-Type": SAFETENSORS, "Accept": SAFETENSORS}, body)


def _safetensors_data(answer: bytes) -> Array:
    start = 8 + int.from_bytes(answer[:8], "little")
    begin, end = json.loads(answer[8:start])["gradients/x"]["data_offsets"]
    return np.frombuffer(answer[start + begin : start + end], np.float32)


def umbridge(x: Array, dy: Array) -> Request:
    """Lists: UM-Bridge has no other format over HTTP."""
    document: dict[str, Any] = {"name": "log1pexp", "outWrt": 0, "inWrt": 0, "input": [x], "sens": dy, "config": {}}
    return _json("/Gradient", document)


def _umbridge_data(answer: bytes) -> Array:
    return _float32(orjson.loads(answer)["output"])


def tesseract(x: Array, dy: Array) -> Request:
    """Bytes in base64."""
    tensors = (
        {
            "object_type": "array",
            "shape": a.shape,
            "dtype": "float32",
            "data": {"buffer": _base64(a), "encoding": "base64"},
        }
        for a in (x, dy)
    )
    document = {
        "inputs": {"x": next(tensors)},
        "vjp_inputs": ["x"],
        "vjp_outputs": ["y"],
        "cotangent_vector": {"y": next(tensors)},
    }
    return _json("/vector_jacobian_product", document, Accept="application/json+base64")


def _tesseract_data(answer: bytes) -> Array:
    return _from_base64(orjson.loads(answer)["x"]["data"]["buffer"])


def triton(x: Array, dy: Array) -> Request:
    """The bytes of both, after a JSON header; the response likewise."""
    slots = {"datatype": "FP32", "shape": [1, len(x)], "parameters": {"binary_data_size": x.nbytes}}
    head = {
        "inputs": [{"name": "x", **slots}, {"name": "dy", **slots}],
        "outputs": [{"name": "dx", "parameters": {"binary_data": True}}],
    }
    header = json.dumps(head).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(header))}
    return Request("/v2/models/log1pexp/infer", headers, header + x.tobytes() + dy.tobytes())


def _triton_data(answer: bytes) -> Array:
    head, end = json.JSONDecoder().raw_decode(answer[:4096].decode("latin-1"))
    size = head["outputs"][0]["parameters"]["binary_data_size"]
    return np.frombuffer(answer[end : end + size], np.float32)


def mlserver(x: Array, dy: Array) -> Request:
    """Flat lists with their shapes."""
    slots = {"datatype": "FP32", "shape": x.shape, "parameters": {"content_type": "np"}}
    document = {"inputs": [{"name": "x", **slots, "data": x}, {"name": "dy", **slots, "data": dy}]}
    return _json("/v2/models/log1pexp/infer", document)


def _mlserver_data(answer: bytes) -> Array:
    return _float32(orjson.loads(answer)["outputs"][0]["data"])


def echo(x: Array, dy: Array) -> Request:
    """The bytes of both; the response is half of them."""
    return Request("/", {"Content-Type": "application/octet-stream"}, x.tobytes() + dy.tobytes())


CANDIDATES = {
    c.name: c
    for c in (
        Candidate("pullback-json", "Pullback, JSON", "pullback", "JSON", "ours", pullback_json, _pullback_data),
        Candidate(
            "pullback-base64", "Pullback, base64", "pullback", "base64", "ours", pullback_base64, _pullback_bytes
        ),
        Candidate(
            "pullback-safetensors",
            "Pullback, safetensors",
            "pullback",
            "binary",
            "ours",
            pullback_safetensors,
            _safetensors_data,
        ),
        Candidate("umbridge", "UM-Bridge, NumPy, JSON", "umbridge_numpy", "JSON", "peer", umbridge, _umbridge_data),
        Candidate(
            "umbridge-tf",
            "UM-Bridge, TensorFlow, JSON",
            "umbridge_tensorflow",
            "JSON",
            "peer",
            umbridge,
            _umbridge_data,
        ),
        Candidate("tesseract", "Tesseract, NumPy, base64", "tesseract", "base64", "peer", tesseract, _tesseract_data),
        Candidate("triton", "Triton, NumPy, binary", "triton", "binary", "peer", triton, _triton_data),
        Candidate("mlserver", "MLServer, NumPy, JSON", "mlserver", "JSON", "peer", mlserver, _mlserver_data),
        Candidate("echo", "limit: an echo, plain ASGI", "echo", "binary", "limit", echo, None),
        Candidate("sockets", "limit: an echo, sockets alone", "sockets", "binary", "limit", echo, None),
        Candidate("in-process", "limit: one caller, no HTTP", "in_process", "none", "limit", echo, None),
    )
}
