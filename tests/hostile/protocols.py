"""Valid requests of the three other protocols for an example of an op.

Not every model exists for every op. A request for one that does not is as good: its refusal must stay the same too.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from tests.hostile.requests import OCTETS, Request, post
from tests.http.openinference_client import LENGTH, binary, in_json

if TYPE_CHECKING:
    from tests.hostile.corpus import Example

DERIVED = ("", ".vjp", ".jvp", ".hvp", ".jacobian")
# The first letter of a tensor's name that stands for a derivative: the cotangent, the tangent, the vector.
ROLES = "dtv"


def requests(client: httpx.Client, example: "Example") -> Iterator[Request]:
    """Yield requests of each protocol."""
    return chain(_umbridge(example), _tesseract(example), _openinference(client, example))


def _umbridge(example: "Example") -> Iterator[Request]:
    shapes = {name: list(x.shape) for name, x in example.inputs.items()}
    flat = [x.reshape(-1).tolist() for x in example.inputs.values()]
    point = {"name": example.op, "config": {"shape": shapes, "attrs": example.attrs}, "input": flat}
    where = {"outWrt": 0, "inWrt": 0}
    vec, sens = flat[0], next(iter(example.outputs.values())).reshape(-1).tolist()
    yield post("/ModelInfo", {"name": example.op})
    for path in ("/InputSizes", "/OutputSizes"):
        yield post(path, {name: point[name] for name in ("name", "config")})
    yield post("/Evaluate", point)
    yield post("/Gradient", point | where | {"sens": sens})
    yield post("/ApplyJacobian", point | where | {"vec": vec})
    yield post("/ApplyHessian", point | {"outWrt": 0, "inWrt1": 0, "inWrt2": 0, "sens": sens, "vec": vec})


def _tesseract(example: "Example") -> Iterator[Request]:
    root = f"/tesseract/{example.op}"
    given: dict[str, Any] = {name: x.tolist() for name, x in example.inputs.items()} | dict(example.attrs)
    tangents = {name: x.tolist() for name, x in example.directions.items()}
    cotangents = {name: y.tolist() for name, y in example.cotangents.items()}
    inputs, outputs = [*tangents], [*cotangents]
    yield Request("GET", f"{root}/openapi.json")
    yield post(f"{root}/apply", {"inputs": given})
    typed = {name: {"shape": list(x.shape), "dtype": x.dtype.name} for name, x in example.inputs.items()}
    yield post(f"{root}/abstract_eval", {"inputs": typed | dict(example.attrs)})
    yield post(f"{root}/jacobian", {"inputs": given, "jac_inputs": inputs, "jac_outputs": outputs})
    fields = {"inputs": given, "jvp_inputs": inputs, "jvp_outputs": outputs, "tangent_vector": tangents}
    yield post(f"{root}/jacobian_vector_product", fields)
    fields = {"inputs": given, "vjp_inputs": inputs, "vjp_outputs": outputs, "cotangent_vector": cotangents}
    yield post(f"{root}/vector_jacobian_product", fields)


def _openinference(client: httpx.Client, example: "Example") -> Iterator[Request]:
    for derived in DERIVED:
        path = f"/v2/models/{example.op}{derived}"
        yield Request("GET", path)
        if (answer := client.get(path)).is_error:
            continue
        tensors = {slot["name"]: _tensor(example, slot["name"]) for slot in answer.json()["inputs"]}
        parameters = dict(example.attrs)
        yield post(f"{path}/infer", {"inputs": in_json(tensors), "parameters": parameters, "id": "1"})
        yield inference(f"{path}/infer", tensors, parameters)


def inference(path: str, tensors: Mapping[str, np.ndarray], parameters: dict[str, Any]) -> Request:
    """Return a request in the protocol's binary form: JSON, then the bytes of the tensors."""
    body, headers = binary(tensors, parameters=parameters)
    head = json.loads(body[: int(headers[LENGTH])])
    return Request("POST", path, (("content-type", OCTETS), *headers.items()), body, head)


def _tensor(example: "Example", name: str) -> np.ndarray:
    """Return the array for a tensor of a model: an input, or a direction for an input or an output."""
    if name in example.inputs:
        return example.inputs[name]
    known = {**example.inputs, **example.outputs}
    return known[name[1:]] if name[0] in ROLES else known[name]
