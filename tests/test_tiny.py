"""The service answers each operation. ``make test`` runs these tests first, so that a broken tree shows at once."""

from typing import Any

import httpx
import pytest

X = {"inputs": {"x": [1, 2]}}
# Each operation on the op square, with a request and what its answer must contain.
OPERATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "forward": ({}, {"outputs": {"y": [1, 4]}}),
    "gradients": ({"order": 2}, {"outputs": {"y": [1, 4]}, "gradients": [{"x": [2, 4]}, {"x": [2, 2]}]}),
    "vjp": ({"cotangents": {"y": [10, -0.5]}}, {"gradients": {"x": [20, -2]}}),
    "jvp": ({"tangents": {"x": [1, 3]}}, {"tangents": {"y": [2, 12]}}),
    "jacobian": ({}, {"jacobian": {"y": {"x": [[2, 0], [0, 4]]}}}),
    "hvp": ({"vectors": {"x": [1, 3]}}, {"products": {"x": [2, 6]}}),
    "hessian": ({}, {"hessian": {"x": {"x": [[2, 0], [0, 2]]}}}),
    "numeric": ({"order": 2}, {"op": "square", "of": "vjp"}),
    "check": ({"checks": ["derivative"], "modes": ["graph"]}, {"op": "square", "verdict": "pass"}),
    "verify": ({"gradients": {"x": [2, 4.5]}}, {"op": "square", "verdict": "fail"}),
}


def numbers_of(answer: Any) -> Any:
    """Return an answer with each tensor replaced by its numbers."""
    if isinstance(answer, dict):
        return answer["data"] if "data" in answer else {name: numbers_of(value) for name, value in answer.items()}
    return [numbers_of(item) for item in answer] if isinstance(answer, list) else answer


def test_the_service_is_ready(client: httpx.Client):
    assert client.get("/health/ready").status_code == 200


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_service_answers(client: httpx.Client, operation: str):
    fields, expected = OPERATIONS[operation]
    response = client.post(f"/v1/ops/square/{operation}", json=X | fields)
    assert response.status_code == 200, response.text
    assert expected.items() <= numbers_of(response.json()).items()
