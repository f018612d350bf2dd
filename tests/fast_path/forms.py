"""One request in every form that the service reads: the same tensors in the native API and in the other protocols."""

import base64
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from app.tensors import safetensors
from tests.fast_path.wire import with_head
from tests.http.openinference_client import LENGTH, OCTETS, binary, in_json

JSON = "content-type: application/json"
SAFETENSORS = ("content-type: application/vnd.safetensors", "accept: application/vnd.safetensors")
Tensors = Mapping[str, Mapping[str, np.ndarray]]
"""Arrays by field, such as ``inputs``, and by name."""
Form = Callable[..., bytes]
"""Writes a request: the op, the operation, the tensors, the dtype, the tag of its head, and more fields."""


def _request(path: str, tag: str, document: Any, *lines: str, separators: tuple[str, str] = (", ", ": ")) -> bytes:
    return with_head(path, (JSON, *lines, tag), json.dumps(document, separators=separators).encode())


def _each(tensors: Tensors, write: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    return {field: {name: write(x) for name, x in values.items()} for field, values in tensors.items()}


def _data(x: np.ndarray) -> str:
    return base64.b64encode(x.tobytes()).decode()


def lists(op: str, operation: str, tensors: Tensors, dtype: str, tag: str, **fields: Any) -> bytes:
    tree = _each(tensors, np.ndarray.tolist) | fields | {"dtype": dtype}
    return _request(f"/v1/ops/{op}/{operation}", tag, tree)


def compact(op: str, operation: str, tensors: Tensors, dtype: str, tag: str, **fields: Any) -> bytes:
    tree = fields | {"dtype": dtype} | _each(tensors, np.ndarray.tolist)
    return _request(f"/v1/ops/{op}/{operation}", tag, tree, separators=(",", ":"))


def typed(op: str, operation: str, tensors: Tensors, dtype: str, tag: str, **fields: Any) -> bytes:
    def write(x: np.ndarray) -> Any:
        return {"dtype": x.dtype.name, "shape": list(x.shape), "data": x.reshape(-1).tolist()}

    return _request(f"/v1/ops/{op}/{operation}", tag, _each(tensors, write) | fields | {"dtype": dtype})


def in_base64(op: str, operation: str, tensors: Tensors, dtype: str, tag: str, **fields: Any) -> bytes:
    def write(x: np.ndarray) -> Any:
        return {"dtype": x.dtype.name, "shape": list(x.shape), "base64": _data(x)}

    return _request(f"/v1/ops/{op}/{operation}", tag, _each(tensors, write) | fields | {"dtype": dtype})


def in_safetensors(op: str, operation: str, tensors: Tensors, dtype: str, tag: str, **fields: Any) -> bytes:
    named = {f"{field}/{name}": x for field, values in tensors.items() for name, x in values.items()}
    body = b"".join(bytes(part) for part in safetensors.lay_out(named, fields | {"dtype": dtype}).pieces())
    return with_head(f"/v1/ops/{op}/{operation}", (*SAFETENSORS, tag), body)


ACTIONS = {"forward": "Evaluate", "vjp": "Gradient", "jvp": "ApplyJacobian", "hvp": "ApplyHessian"}


def umbridge(op: str, operation: str, tensors: Tensors, dtype: str, tag: str, **fields: Any) -> bytes:
    """Write a request for the first input and output."""
    xs = tensors["inputs"]
    config = {"shape": {name: list(x.shape) for name, x in xs.items()}, "dtype": dtype, "attrs": fields.get("attrs")}
    body: dict[str, Any] = {"name": op, "config": config, "input": [x.reshape(-1).tolist() for x in xs.values()]}
    body |= {"forward": {}, "hvp": {"outWrt": 0, "inWrt1": 0, "inWrt2": 0}}.get(operation, {"outWrt": 0, "inWrt": 0})
    for name, field in (("sens", "cotangents"), ("vec", "tangents"), ("vec", "vectors")):
        if field in tensors:
            body[name] = next(iter(tensors[field].values())).reshape(-1).tolist()
    return _request(f"/{ACTIONS[operation]}", tag, body, "user-agent: python-requests/2.32")


ENDPOINTS = {"forward": "apply", "vjp": "vector_jacobian_product", "jvp": "jacobian_vector_product"}


def tesseract(
    op: str, operation: str, tensors: Tensors, dtype: str, tag: str, *, inside: str, outside: str, **fields: Any
) -> bytes:
    def write(x: np.ndarray) -> Any:
        buffer = x.tolist() if inside == "json" else _data(x)
        data = {"buffer": buffer, "encoding": inside}
        return {"object_type": "array", "shape": list(x.shape), "dtype": x.dtype.name, "data": data}

    written = _each(tensors, write)
    body: dict[str, Any] = {"inputs": written["inputs"] | fields.get("attrs", {})}
    if operation == "vjp":
        names = list(tensors["inputs"]), list(tensors["cotangents"])
        body |= {"vjp_inputs": names[0], "vjp_outputs": names[1], "cotangent_vector": written["cotangents"]}
    elif operation == "jvp":
        body |= {"jvp_inputs": list(tensors["inputs"]), "jvp_outputs": ["y"], "tangent_vector": written["tangents"]}
    return _request(f"/tesseract/{op}/{ENDPOINTS[operation]}", tag, body, f"accept: application/{outside}")


def inference(
    op: str, operation: str, tensors: Tensors, dtype: str, tag: str, *, is_binary: bool, **fields: Any
) -> bytes:
    letters = {"inputs": "", "cotangents": "d", "tangents": "t", "vectors": "v"}
    named = {letters[field] + name: x for field, values in tensors.items() for name, x in values.items()}
    path = f"/v2/models/{op if operation == 'forward' else f'{op}.{operation}'}/infer"
    if is_binary:
        body, headers = binary(named, parameters=fields.get("attrs", {}))
        return with_head(path, (f"content-type: {OCTETS}", f"{LENGTH}: {headers[LENGTH]}", tag), body)
    return _request(path, tag, {"id": "1", "inputs": in_json(named), "parameters": fields.get("attrs", {})})


NATIVE: Mapping[str, Form] = {form.__name__: form for form in (lists, compact, typed, in_base64, in_safetensors)}
PROTOCOLS: Mapping[str, tuple[Form, tuple[str, ...]]] = {
    "umbridge": (umbridge, ("forward", "vjp")),
    "tesseract": (partial(tesseract, inside="base64", outside="json+base64"), tuple(ENDPOINTS)),
    "tesseract in lists": (partial(tesseract, inside="json", outside="json"), tuple(ENDPOINTS)),
    "inference": (partial(inference, is_binary=False), ("forward", "vjp", "jvp", "hvp")),
    "inference in binary": (partial(inference, is_binary=True), ("forward", "vjp", "jvp", "hvp")),
}
