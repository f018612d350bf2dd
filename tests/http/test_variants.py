"""Inputs that a request may leave out: every operation without one answers as with a neutral one."""

from collections.abc import Iterator
from typing import Any, cast

import httpx
import numpy as np
import pytest

from tests.http.native_client import MODES, array, ask, post, problem
from tests.http.test_binary import binary, decode, encode

X, W = [[0.5, -1.0], [2.0, 0.25]], [[1.0, 0.5, 2.0], [0.25, 1.0, -1.0]]
SENT = {"x": X, "w": W}
NEUTRAL = {**SENT, "b": [0.0, 0.0, 0.0]}
DY = [[1.0, 2.0, -1.0], [0.5, 1.0, 3.0]]
OPERATIONS: dict[str, dict[str, Any]] = {
    "forward": {},
    "gradients": {"order": 2, "cotangents": {"y": DY}},
    "vjp": {"cotangents": {"y": DY}, "outputs": True},
    "jvp": {"tangents": {"x": [[1, 2], [3, 4]]}},
    "jacobian": {},
    "hvp": {"cotangents": {"y": DY}, "vectors": {"x": [[1, 0], [2, 1]], "w": W}},
    "hessian": {"cotangents": {"y": DY}},
}


def arrays(tree: Any, *path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of an answer with their paths, but for those that belong to the input b."""
    branches = (
        {str(i): each for i, each in enumerate(cast("list[Any]", tree))} if isinstance(tree, list) else tree or {}
    )
    if "dtype" in branches:
        yield ".".join(path), array(branches)
        return
    for name, value in branches.items():
        if name not in ("b", "absent"):
            yield from arrays(value, *path, name)


def assert_near(found: Any, expected: Any) -> None:
    one, other = dict(arrays(found)), dict(arrays(expected))
    assert one.keys() == other.keys() != set()
    for name, value in other.items():
        np.testing.assert_allclose(one[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_without_an_input(plugged: httpx.Client, operation: str, mode: str) -> None:
    more = {"dtype": "float64", "mode": mode, **OPERATIONS[operation]}
    found = ask(plugged, "affine", operation, inputs=SENT, **more)
    neutral = ask(plugged, "affine", operation, inputs=NEUTRAL, **more)
    assert_near(found, neutral)
    assert ("not_sent" in str(found.get("absent"))) == (operation not in ("forward", "jvp"))
    again = ask(plugged, "affine", operation, inputs=SENT, **more)  # from the fast path
    assert again == found


def test_a_derivative_with_respect_to_what_is_not_sent(plugged: httpx.Client) -> None:
    assert ask(plugged, "affine", "vjp", inputs=SENT, wrt=["b"]) == {
        "gradients": {"b": None},
        "absent": {"b": "not_sent"},
    }
    for operation, field in (("jvp", "tangents"), ("hvp", "vectors")):
        [error] = problem(post(plugged, "affine", operation, inputs=SENT, **{field: {"b": [1, 1, 1]}}), 422)["errors"]
        assert (error["loc"], error["message"]) == ([field, "b"], "input b is not sent")
    [error] = problem(post(plugged, "affine", "forward", inputs={"x": X, "b": [1, 1, 1]}), 422)["errors"]
    assert error["message"] == "missing input w"


def test_derived_ops_without_an_input(plugged: httpx.Client) -> None:
    dx = ask(plugged, "affine.vjp", "forward", inputs={**SENT, "dy": DY})
    vjp = ask(plugged, "affine", "vjp", inputs=SENT, cotangents={"y": DY})
    assert {f"d{name}": value for name, value in vjp["gradients"].items()} == dx["outputs"]
    assert dx["absent"] == {"db": "not_sent"}
    tangents = {"tx": [[1, 2], [3, 4]], "tw": W}
    ty = ask(plugged, "affine.jvp", "forward", inputs={**SENT, **tangents})["outputs"]
    assert ty == ask(plugged, "affine.jvp", "forward", inputs={**NEUTRAL, **tangents, "tb": [0, 0, 0]})["outputs"]
    second = {**SENT, "dy": DY, "ddx": [[1, 0], [2, 1]], "ddw": W}
    found = ask(plugged, "affine.vjp.vjp", "forward", inputs=second, dtype="float64")["outputs"]
    hvp = ask(plugged, "affine", "hvp", inputs=SENT, dtype="float64", **OPERATIONS["hvp"])["products"]
    assert_near({name: found[f"d{name}"] for name in SENT}, {name: hvp[name] for name in SENT})


def test_without_an_input_in_safetensors(plugged: httpx.Client) -> None:
    for inputs in (SENT, NEUTRAL, SENT):
        body = encode({f"inputs/{name}": np.asarray(x, np.float32) for name, x in inputs.items()})
        found, fields = decode(binary(plugged, "affine/vjp", body).content)
        assert found.keys() == {f"gradients/{name}" for name in inputs}
        assert fields.get("absent", {}) == ({} if inputs is NEUTRAL else {"b": "not_sent"})


def test_the_contract_says_what_is_optional(plugged: httpx.Client) -> None:
    for op in ("affine", "affine.vjp", "affine.jvp"):
        found = plugged.get(f"/v1/ops/{op}").json()
        optional = {slot["name"] for slot in found["inputs"] if slot.get("optional")}
        assert optional == ({"b", "tb"} if op == "affine.jvp" else {"b"})
        for example in found["examples"]:
            assert ask(plugged, op, "forward", inputs=example["inputs"])
