"""Answers with their uncertainty: the numbers are those without, and the estimates show what cancels."""

from typing import Any

import httpx
import numpy as np
import pytest

from tests.http.native_client import BINARY, MODES, OPERATIONS, array, ask, fault, post
from tests.http.test_binary import decode, encode
from tests.http.test_many_points import requests_of, same, tensors

DTYPES = ("float32", "float64")


@pytest.mark.share(3)
@pytest.mark.parametrize("op", ["square", "softmax_cross_entropy", "self_adjoint_eig", "surrogate", "roi_pool"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_numbers_are_those_without_digits(client: httpx.Client, op: str, operation: str) -> None:
    contract = client.get(f"/v1/ops/{op}").json()
    found = requests_of(contract, operation)
    assert found is not None
    many, ones = found
    plain = [ask(client, op, operation, **one) for one in ones]
    for body, bare in zip(ones, plain, strict=True):
        answer = ask(client, op, operation, **body, digits=True)
        again = ask(client, op, operation, **body, digits=True)
        assert again == answer
        uncertainty = answer.pop("uncertainty")
        answer.pop("no_uncertainty", None)
        assert answer == bare
        numbers, estimates = tensors({k: v for k, v in bare.items() if k != "absent"}), tensors(uncertainty)
        assert numbers.keys() == estimates.keys()
        for path, number in numbers.items():
            estimate = estimates[path]
            if number is None or number.dtype.kind in "iub":
                assert estimate is None
            else:
                assert estimate is not None
                assert estimate.shape == number.shape
                assert (estimate >= 0).all()
    whole = ask(client, op, operation, **{**many, "points": True}, digits=True)
    whole.pop("no_uncertainty", None)
    same(
        {k: v for k, v in whole.items() if k != "absent"},
        [_without_reasons(client, op, operation, one) for one in ones],
    )


def _without_reasons(client: httpx.Client, op: str, operation: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = ask(client, op, operation, **body, digits=True)
    return {name: tree for name, tree in answer.items() if name not in ("absent", "no_uncertainty")}


def uncertainty(client: httpx.Client, op: str, operation: str, **body: Any) -> dict[str, Any]:
    """Return the number and the uncertainty of each tensor of an answer, by the name of the field and of the slot."""
    answer = ask(client, op, operation, **body, digits=True)
    numbers, estimates = tensors(answer), tensors(answer["uncertainty"])
    return {"/".join(path): (numbers[path], estimate) for path, estimate in estimates.items()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_does_not_round_is_exact(client: httpx.Client, dtype: str) -> None:
    for op, inputs in (("transpose", {"x": [[0.1, 0.2]]}), ("slice", {"x": [0.1, -0.2]}), ("sign", {"x": [0.1, 0.0]})):
        for operation in ("forward", "vjp"):
            for number, estimate in uncertainty(client, op, operation, inputs=inputs, dtype=dtype).values():
                assert (number is None) == (estimate is None)
                assert not np.any(estimate), (op, operation, estimate)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvectors_of_near_eigenvalues_have_few_digits(client: httpx.Client, dtype: str) -> None:
    """The vectors of eigenvalues that are ``gap`` apart are off by about eps / gap."""
    unit = float(np.finfo(dtype).eps)
    for gap in (1.0, 1e4 * unit):
        a = [[2.0, 0.3 * gap], [0.3 * gap, 2.0 + gap]]
        vectors, off = uncertainty(client, "self_adjoint_eig", "forward", inputs={"a": a}, dtype=dtype)["outputs/v"]
        assert unit / gap / 100 < off.max() < 100 * unit / gap
        assert vectors.dtype == off.dtype == dtype


def test_a_narrow_dtype_is_compared_with_the_widest(client: httpx.Client) -> None:
    """Where exp(x) overflows in float32, the second order of log1pexp2 is infinitely far off."""
    found = uncertainty(client, "log1pexp2", "gradients", inputs={"x": [1.0, 100.0]}, order=2)
    assert found["gradients/1/x"][1].tolist()[1] == np.inf
    number, off = found["gradients/0/x"]
    assert abs(float(number[0]) - 1 / (1 + np.exp(-1.0))) <= off[0] < 1e-7


def test_half_precision_has_uncertainties_of_float32(client: httpx.Client) -> None:
    for dtype in ("float16", "bfloat16"):
        number, off = uncertainty(client, "square", "vjp", inputs={"x": [1.25]}, cotangents={"y": [1.3]}, dtype=dtype)[
            "gradients/x"
        ]
        assert off.dtype == np.float32
        wide = 2.5 * float(array({"dtype": dtype, "shape": [], "data": 1.3}))
        assert abs(float(number[0]) - wide) <= off[0] <= 0.01


def test_in_binary_uncertainties_have_the_paths_of_the_numbers(client: httpx.Client) -> None:
    body = encode({"inputs/x": np.array([1.1, 3.0])}, dtype="float64", order=2, digits=True)
    headers = {"content-type": BINARY, "accept": BINARY}
    found, metadata = decode(client.post("/v1/ops/square/gradients", content=body, headers=headers).content)
    json = ask(client, "square", "gradients", inputs={"x": [1.1, 3.0]}, dtype="float64", order=2, digits=True)
    for path, tensor in found.items():
        tree = json
        for name in path.split("/"):
            tree = tree[int(name) - 1] if isinstance(tree, list) else tree[name]
        assert array(tree).tobytes() == tensor.tobytes()
    assert "uncertainty/gradients/2/x" in found
    assert not metadata


def test_a_graph_rounds_as_its_nodes_do(client: httpx.Client) -> None:
    """A posted graph of one op is about as uncertain as the op, and the error of a node reaches what cancels it."""

    def graph(*nodes: tuple[str, str, dict[str, Any]]) -> str:
        document = {
            "inputs": [{"name": "x", "shape": ["N"]}],
            "nodes": [{"name": name, "op": op, "inputs": inputs} for name, op, inputs in nodes],
            "outputs": {"y": nodes[-1][0]},
        }
        return client.post("/v1/graphs", json=document).raise_for_status().json()["name"]

    soft = ("soft", "log1pexp", {"x": "x"})
    alone, shifted = graph(soft), graph(soft, ("less", "subtract", {"a": "soft", "b": {"constant": 20.0}}))
    for operation in ("forward", "vjp"):
        body: dict[str, Any] = {"inputs": {"x": [20.0]}, "dtype": "float64", "mode": "graph"}
        of_graph = uncertainty(client, alone, operation, **body)
        for name, (number, off) in uncertainty(client, "log1pexp", operation, **body).items():
            assert number == of_graph[name][0]
            assert off / 10 < of_graph[name][1] < 10 * off  # each from four random runs
    # exp(-20) is what is left of 20 + exp(-20), whose last bit is 3.6e-15.
    number, off = uncertainty(client, shifted, "forward", inputs={"x": [20.0]}, dtype="float64")["outputs/y"]
    assert abs(number[0] - np.log1p(np.exp(-20.0))) <= off[0]
    assert 1e-15 < off[0] < 1e-13


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_digits(client: httpx.Client, mode: str) -> None:
    for number, off in uncertainty(
        client, "log1pexp", "vjp", inputs={"x": [1.5, -30.0]}, dtype="float64", mode=mode
    ).values():
        assert (off > 0).all()
        assert (off < 1e-14 * np.abs(number)).all()


def test_each_of_several_directions_has_digits(client: httpx.Client) -> None:
    body = {"inputs": {"x": [1.1, 1.3]}, "dtype": "float64", "batched": True}
    cotangents = [[1.0, 0.3], [0.0, 1e6], [1e-3, 1.0]]
    whole = ask(client, "square", "vjp", **body, cotangents={"y": cotangents}, digits=True)["uncertainty"]
    off = array(whole["gradients"]["x"])
    assert off.shape == (3, 2)
    assert off[1, 0] == 0
    for row, one in zip(off, cotangents, strict=True):
        assert (row < 1e-14 * np.abs(one)).all() or (np.array(one) == 0).any()


def test_the_other_protocols_refuse_digits(client: httpx.Client) -> None:
    evaluate = {"name": "square", "input": [[1.5]], "config": {"shape": {"x": [1]}, "digits": True}}
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.5]}
    for path, status, body in (
        ("/Evaluate", 400, evaluate),
        ("/tesseract/square/apply", 422, {"inputs": {"x": [1.5]}, "digits": True}),
        ("/v2/models/square/infer", 400, {"inputs": [tensor], "parameters": {"digits": True}}),
    ):
        response = client.post(path, json=body)
        assert response.status_code == status
        assert "digits" in response.text


@pytest.mark.parametrize(
    ("operation", "body", "message"),
    [("vjp", {"digits": 1}, "boolean"), ("jacobian", {"digits": True, "sparse": "coo"}, "sparse")],
)
def test_what_has_no_digits_says_why(client: httpx.Client, operation: str, body: dict[str, Any], message: str) -> None:
    entry = fault(post(client, "square", operation, inputs={"x": [1.0]}, **body))
    assert entry["loc"] == ["digits"]
    assert message in entry["message"]


def test_kernels_with_a_state_and_integers_have_no_digits(plugged: httpx.Client) -> None:
    entry = fault(post(plugged, "patient", "vjp", inputs={"x": [1.0]}, digits=True))
    assert entry["loc"] == ["digits"]
    assert "PyFunc" in entry["message"]
    found = ask(plugged, "picked", "forward", inputs={"x": [1.0, 2.0], "i": [0, 1]}, digits=True)
    assert found["uncertainty"]["outputs"]["next"] is None
    assert found["no_uncertainty"] == {"outputs": {"next": "whole_number"}}


def test_what_a_python_function_computes_has_no_uncertainty(plugged: httpx.Client) -> None:
    """It is null, with the reason in its place; what does not depend on the function has one."""
    for more in ({}, {"dtype": "float64"}, {"points": True}, {"mode": "eager"}):
        body: dict[str, Any] = {"inputs": {"x": [[0.5, 1.0]] if "points" in more else [0.5, 1.0]}, **more}
        found = ask(plugged, "unseen", "vjp", **body, outputs=True, digits=True)
        assert found["outputs"]["y"] is not None
        assert found["uncertainty"]["outputs"]["y"] is None
        assert found["no_uncertainty"] == {"outputs": {"y": "python_function"}}
        for estimate in (found["uncertainty"]["outputs"]["z"], found["uncertainty"]["gradients"]["x"]):
            assert (array(estimate) > 0).all()
            assert (array(estimate) < 1e-6).all()
    headers = {"accept": BINARY}
    response = plugged.post("/v1/ops/unseen/forward", json={"inputs": {"x": [0.5]}, "digits": True}, headers=headers)
    tensors, metadata = decode(response.content)
    assert set(tensors) == {"outputs/y", "outputs/z", "uncertainty/outputs/z"}
    assert metadata["no_uncertainty"] == {"outputs": {"y": "python_function"}}


def test_the_widest_dtype_has_no_digits_either(client: httpx.Client) -> None:
    """1/2 - x is 0 in both dtypes where x is the half of 1 + h, of which neither has h."""
    document = {
        "inputs": [{"name": "h", "shape": ["N"]}],
        "nodes": [
            {"name": "near", "op": "add", "inputs": {"a": "h", "b": {"constant": 1.0}}},
            {"name": "lost", "op": "subtract", "inputs": {"a": "near", "b": {"constant": 1.0}}},
            {"name": "back", "op": "divide", "inputs": {"a": "lost", "b": "h"}},
        ],
        "outputs": {"y": "back"},
    }
    name = client.post("/v1/graphs", json=document).raise_for_status().json()["name"]
    number, off = uncertainty(client, name, "forward", inputs={"h": [1e-20]})["outputs/y"]
    assert number == 0
    assert off > 1
