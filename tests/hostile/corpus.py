"""Valid requests for every op: its contract's examples in the native API, as JSON and as safetensors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from app.tensors import safetensors
from tests.hostile import protocols
from tests.hostile.requests import SAFETENSORS, Request, post
from tests.http.native_client import OPERATIONS, array

PAGES = ("/health/live", "/v1/ops", "/openapi.json", "/docs", "/Info", "/v2", "/v2/health/ready")
# Bytes of an answer, above which a request is an attack on memory and no good request.
SHORT = 1 << 20


@dataclass(frozen=True)
class Example:
    """An example of an op: arrays for its inputs and its outputs, and the names of those with derivatives."""

    op: str
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    attrs: Mapping[str, Any]
    live_inputs: tuple[str, ...]
    live_outputs: tuple[str, ...]

    @property
    def directions(self) -> dict[str, np.ndarray]:
        """One direction for each input that has derivatives: the input itself."""
        return {name: self.inputs[name] for name in self.live_inputs}

    @property
    def cotangents(self) -> dict[str, np.ndarray]:
        """One cotangent for each output that has derivatives: the output itself."""
        return {name: self.outputs[name] for name in self.live_outputs}


def corpus(client: httpx.Client, examples: int) -> list[Request]:
    """Return valid requests for so many examples of every op of the service, in every protocol, and its pages."""
    found = [Request("GET", path) for path in PAGES]
    for entry in client.get("/v1/ops").raise_for_status().json()["ops"]:
        contract = client.get(f"/v1/ops/{entry['name']}").raise_for_status().json()
        # The contract of an op with rows lists the shapes that were tried, so it changes.
        if contract["batching"] in ("elementwise", "none"):
            found.append(Request("GET", f"/v1/ops/{entry['name']}"))
        for number, given in enumerate(contract["examples"][:examples]):
            example = _example(client, contract, given)
            found += _native(example)
            if not number:
                found += protocols.requests(client, example)
    return found


def _example(client: httpx.Client, contract: Mapping[str, Any], given: Mapping[str, Any]) -> Example:
    path = f"/v1/ops/{contract['name']}/forward"
    document = {"inputs": given["inputs"], "attrs": given["attrs"]}
    answer = client.post(path, json=document).raise_for_status().json()
    dtypes = {slot["name"]: slot["dtypes"][0] for slot in contract["inputs"]}
    return Example(
        contract["name"],
        {name: np.array(value, dtypes[name]) for name, value in given["inputs"].items()},
        {name: array(value) for name, value in answer["outputs"].items()},
        given["attrs"],
        tuple(slot["name"] for slot in contract["inputs"] if slot["differentiable"]),
        tuple(slot["name"] for slot in contract["outputs"] if slot["differentiable"]),
    )


def _native(example: Example) -> Iterator[Request]:
    along = {"jvp": "tangents", "hvp": "vectors"}
    for operation in OPERATIONS:
        tensors = {"inputs": example.inputs}
        if operation in along:
            tensors[along[operation]] = example.directions
        if operation == "vjp":
            tensors["cotangents"] = example.cotangents
        path = f"/v1/ops/{example.op}/{operation}"
        lists = {field: {name: x.tolist() for name, x in values.items()} for field, values in tensors.items()}
        yield post(path, lists | {"attrs": example.attrs})
        yield _binary(path, tensors, example.attrs)
    document = {"inputs": {name: x.tolist() for name, x in example.inputs.items()}, "attrs": example.attrs}
    yield post(f"/v1/ops/{example.op}/vjp", document | {"encoding": "base64", "dtype": "float64", "mode": "graph"})


def _binary(path: str, tensors: Mapping[str, Mapping[str, np.ndarray]], attrs: Mapping[str, Any]) -> Request:
    named = {f"{field}/{name}": x for field, values in tensors.items() for name, x in values.items()}
    body = b"".join(bytes(part) for part in safetensors.lay_out(named, {"attrs": dict(attrs)}).pieces())
    return Request("POST", path, (("content-type", SAFETENSORS), ("accept", SAFETENSORS)), body)
