"""Errors are in the service's own words: for each field of each request, values of every other type."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import httpx
import pytest

# How pydantic writes errors, and how Python writes types and values.
LIBRARY = re.compile(
    r"Input should|String should|should match|should have|after validation|<class|instance of|None|True|False|"
    r"valid (string|number|boolean|list|dictionary|tuple)"
)
VALUES: list[Any] = [None, {}, [], "a b", 1.5, True, -1, 10**30, [None], {"a b": None}, "x" * 200]
X: Mapping[str, Any] = {"inputs": {"x": [1.0, 2.0]}}
NODES: list[Any] = [{"name": "p", "op": "square", "inputs": {"x": "x"}, "attrs": {}}]
EXAMPLES: list[Any] = [{"name": "e", "inputs": {"x": [1.0]}, "attrs": {}}]
GRAPH: Mapping[str, Any] = {
    "inputs": [{"name": "x", "shape": ["..."], "domain": [0, 1], "doc": ""}],
    "nodes": NODES,
    "outputs": {"y": "p"},
    "attrs": {},
    "summary": "",
    "doc": "",
    "examples": EXAMPLES,
}
COMMON: Mapping[str, Any] = {
    "attrs": {},
    "dtype": "float32",
    "mode": "graph",
    "device": "cpu",
    "encoding": "nested",
    **X,
}
ONE: Mapping[str, Any] = {"x": [1.0, 1.0]}
# The last field is wrong, so that no check runs.
CHECKED: Mapping[str, Any] = {
    "checks": ["value"],
    "modes": ["graph"],
    "dtypes": ["float32"],
    "orders": [1],
    "seed": 1,
    "budget_s": -1,
}
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "/v1/ops/square/forward": {**COMMON, "points": True, "partial": True},
    "/v1/ops/square/gradients": {**COMMON, "order": 1, "cotangents": {"y": [1.0, 1.0]}, "wrt": ["x"]},
    "/v1/ops/square/vjp": {**COMMON, "cotangents": {"y": [1.0, 1.0]}, "wrt": ["x"], "batched": False, "outputs": True},
    "/v1/ops/square/jvp": {**COMMON, "tangents": ONE, "batched": False},
    "/v1/ops/square/jacobian": {**COMMON, "of": ["y"], "wrt": ["x"]},
    "/v1/ops/square/hvp": {**COMMON, "vectors": ONE, "batched": False},
    "/v1/ops/square/hessian": {**COMMON, "diagonal": True},
    "/v1/ops/square/numeric": {**X, "order": 1, "claim": False, "tangents": ONE, "wrt": ["x"]},
    "/v1/ops/square/verify": {**X, "gradients": ONE, "tolerances": {"rtol": 0.1, "atol": 0.1}},
    "/v1/ops/square/check": {**CHECKED, **X},
    "/v1/checks": {**CHECKED, "ops": ["square"], "findings": False, "progress": False},
    "/v1/graphs": GRAPH,
    "/Evaluate": {"name": "square", "input": [[1.0, 2.0]], "config": {"shape": [2]}},
    "/tesseract/square/apply": {"inputs": {"x": [1.0, 2.0]}},
    "/v2/models/square/infer": {
        "inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0], "parameters": {}}],
        "outputs": [{"name": "y", "parameters": {}}],
        "parameters": {},
        "id": "a",
    },
}


def changed(value: Any) -> Iterator[Any]:
    """Yield the value with one of its parts, or the whole, replaced by each of the values, and with another field."""
    yield from VALUES
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        yield {**fields, "unknown": 1}
        for key, part in fields.items():
            yield {name: other for name, other in fields.items() if name != key}
            yield from ({**fields, key: each} for each in changed(part))
    if isinstance(value, list) and value:
        items = cast("list[Any]", value)
        yield from ([each] for each in changed(items[0]))
        yield items * 300


@pytest.mark.parametrize("path", REQUESTS)
def test_errors_are_in_our_own_words(client: httpx.Client, path: str) -> None:
    refused = 0
    for body in changed(REQUESTS[path]):
        if "check" in path and not (isinstance(body, dict) and cast("dict[str, Any]", body).get("budget_s") == -1):
            continue  # it might be valid
        response = client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
        if response.status_code >= 400:
            refused += 1
            assert not LIBRARY.search(response.text), (body, response.text)
            assert response.status_code < 500, (body, response.text)
    assert refused > len(VALUES)


@pytest.mark.parametrize(
    "path",
    ["/v1/graphs/X", "/v1/ops/Square", "/v1/ops/square/forwards", "/v1/graphs/graph.0", f"/v2/models/graph.{'0' * 32}"],
)
def test_so_are_those_of_paths(client: httpx.Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code in (404, 405, 422)
    assert not LIBRARY.search(response.text), response.text
