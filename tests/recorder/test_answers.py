"""A recorded answer beside those with other vectors: the same derivative, or a finding."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.dtypes import Array
from pullback.gradcheck.function import Request
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.sample import largest_of
from pullback.gradcheck.verdict import Finding, Subject
from pullback.recorder.answers import CHECK, REQUESTS, answered, parts_of
from tests.recorder.test_record_repeats import encoded

J = np.array([[1.0, 2.0, -0.5], [0.25, -3.0, 0.125]])
"""The Jacobian of two outputs in three inputs."""
SUBJECT = Subject(CHECK, None, None, None, "umbridge", "float64")


def umbridge(member: str) -> Callable[[Array], dict[str, Any]]:
    return lambda v: {
        "name": "m",
        "input": [[0.5, 1.0, 2.0]],
        "outWrt": 0,
        "inWrt": 0,
        member: v.tolist(),
        "config": {},
    }


def tesseract(member: str, slot: str) -> Callable[[Array], dict[str, Any]]:
    return lambda v: {"inputs": {"x": encoded(0.5, 1.0, 2.0)}, member: {slot: encoded(*v)}}


def inference(v: Array) -> dict[str, Any]:
    x = {"name": "x", "shape": [3], "datatype": "FP64", "data": [0.5, 1.0, 2.0]}
    return {"inputs": [x, {"name": "dy", "shape": [2], "datatype": "FP64", "data": v.tolist()}], "parameters": {"a": 1}}


def in_inference(dx: Array) -> dict[str, Any]:
    data = {"name": "dx", "shape": list(dx.shape), "datatype": "FP64", "data": dx.tolist()}
    return {
        "model_name": "m",
        "outputs": [data],
        "parameters": {"milliseconds": float(np.random.default_rng().random())},
    }


def vector_in(path: str, body: Any) -> Array:
    """Return the vector of a request, as a server reads it."""
    if path.startswith("/v2"):
        return np.array(body["inputs"][1]["data"])
    found = body.get("sens", body.get("vec", body.get("cotangent_vector", body.get("tangent_vector"))))
    return np.array(found if isinstance(found, list) else next(iter(found.values()))["data"]["buffer"])


CALLS = {
    "/Gradient": (umbridge("sens"), lambda v: {"output": (J.T @ v).tolist()}, 2),
    "/ApplyJacobian": (umbridge("vec"), lambda v: {"output": (J @ v).tolist()}, 3),
    "/ApplyHessian": (umbridge("vec"), lambda v: {"output": (J.T @ (J @ v)).tolist()}, 3),
    "/vector_jacobian_product": (tesseract("cotangent_vector", "y"), lambda v: {"x": encoded(*(J.T @ v))}, 2),
    "/jacobian_vector_product": (tesseract("tangent_vector", "x"), lambda v: {"y": encoded(*(J @ v))}, 3),
    "/v2/models/m.vjp/infer": (inference, lambda v: in_inference(J.T @ v), 2),
}


def judged(path: str, v: Array, spoil: float = 0.0, noise: float = 0.0) -> Finding:
    """Return the finding on an answer whose last number is off, of a server with noise."""
    request, answer, _ = CALLS[path]
    body, rng = request(v), np.random.default_rng(0)
    before = json.dumps(body)
    parts = parts_of(path, body, ["y"], rng)
    assert json.dumps(body) == before
    assert len(parts) == REQUESTS
    vectors = [vector_in(path, each) for each in parts]
    now = [answer(each + noise * largest_of(v) * rng.standard_normal(each.shape)) for each in vectors]
    recorded = answer(v + np.r_[np.zeros(len(v) - 1), spoil])
    requests = [Request(f"http://localhost{path}", each, "the answer") for each in (body, *parts)]
    return answered(recorded, now, Comparison(SUBJECT), requests)


@pytest.mark.parametrize("path", CALLS)
def test_a_derivative_of_the_same_point_passes_and_another_fails(path: str) -> None:
    for v in np.random.default_rng(1).standard_normal((5, CALLS[path][2])) * np.logspace(-9, 9, 5)[:, None]:
        assert judged(path, v).verdict == "pass"
        for spoil in (1.0, 1e-3, 1e-7, 1e-10):
            assert judged(path, v, spoil * largest_of(v)).verdict == "fail"
    assert judged(path, np.zeros(CALLS[path][2])).verdict == "pass"


def test_a_finding_has_three_requests() -> None:
    finding = judged("/Gradient", np.ones(2), 0.5)
    assert finding.reproduction is not None
    assert finding.reproduction.command.count("curl -s http://localhost/Gradient ") == 3
    assert "but what other vectors show by linearity is" in finding.sentence


@pytest.mark.parametrize("path", CALLS)
def test_the_noise_of_derivatives_is_no_error(path: str) -> None:
    v = np.random.default_rng(2).standard_normal(CALLS[path][2])
    assert judged(path, v, 1e-6, noise=1e-6).verdict == "pass"
    assert judged(path, v, 1.0, noise=1e-6).verdict == "fail"


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_vectors_are_those_that_the_dtype_has(dtype: str) -> None:
    body = {"inputs": {}, "cotangent_vector": {"y": {**encoded(0.1, 0.7), "dtype": dtype}}}
    body["cotangent_vector"]["y"]["data"] = {"buffer": [0.1, 0.7], "encoding": "json"}
    parts = parts_of("/vector_jacobian_product", body, ["y"], np.random.default_rng(0))
    for part in parts:
        found = vector_in("/vector_jacobian_product", part)
        assert (found == found.astype(dtype)).all()
        assert part["cotangent_vector"]["y"]["dtype"] == dtype


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/Evaluate", umbridge("sens")(np.ones(2))),
        ("/apply", {"inputs": {"x": encoded(1.0)}}),
        ("/jacobian", {"inputs": {"x": encoded(1.0)}}),
        ("/v2/models/m/infer", inference(np.ones(2))),
    ],
)
def test_values_have_no_parts(path: str, body: Any) -> None:
    assert parts_of(path, body, ["y"], np.random.default_rng(0)) == []


def test_other_arrays_fail() -> None:
    requests = [Request("http://localhost/Gradient", {}, "the answer")] * 3
    found = answered({"output": [1.0]}, [{"output": [1.0]}, {"output": [1.0, 2.0]}], Comparison(SUBJECT), requests)
    assert found.verdict == "fail"
