"""``kserve.InferenceRESTClient``: all its calls in version 2 of the protocol."""

import asyncio
import math

import httpx
import numpy as np
import pytest
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

NAMES = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "bool": "BOOL"}
X = np.array([[0.5, -1.25, 3.0]], np.float32)
DY = np.array([[1.0, 2.0, -0.5]], np.float32)
ROUNDINGS = 6


@pytest.fixture
def ask(url):
    """Call a method of the client, each time on a new event loop."""

    def run(method, *args, **more):
        async def call():
            async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
                return await getattr(client, method)(url, *args, **more)

        return asyncio.run(call())

    return run


def infer_input(name, array, binary=True):
    datatype = NAMES.get(array.dtype.name, array.dtype.name.upper())
    tensor = InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def request(model, binary=True, answer=True, outputs=None, parameters=None, **arrays):
    parameters = {"binary_data_output": answer} | (parameters or {})
    inputs = [infer_input(name, array, binary) for name, array in arrays.items()]
    return InferRequest(model, inputs, "7", parameters=parameters, request_outputs=outputs)


def outputs_of(response):
    return {output.name: output.as_numpy() for output in response.outputs}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("answer", [True, False])
def test_a_gradient(ask, native, binary, answer):
    headers = {}
    data = request("log1pexp.vjp", binary, answer, x=X, dy=DY)
    response = ask("infer", data, model_name="log1pexp.vjp", response_headers=headers)
    dx = outputs_of(response)["dx"]
    expected = native("log1pexp", "vjp", inputs={"x": X.tolist()}, cotangents={"y": DY.tolist()})
    np.testing.assert_array_equal(dx, expected["gradients"]["x"])
    assert np.all(np.abs(dx - DY / (1 + np.exp(-X.astype(np.float64)))) <= ROUNDINGS * 2.0**-23 * np.abs(DY))
    assert (response.id, response.model_name) == ("7", "log1pexp.vjp")
    assert ("inference-header-content-length" in headers) == answer


def test_a_dictionary(ask):
    data = {"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}]}
    found = outputs_of(ask("infer", data, model_name="square"))
    assert found["y"].tolist() == [1, 4, 9]


@pytest.mark.parametrize("binary", [True, False])
def test_bools(ask, binary):
    x, mask = np.float32([1, 2, 3]), np.array([True, False, True])
    found = outputs_of(ask("infer", request("masked", binary, x=x, mask=mask), model_name="masked"))
    np.testing.assert_array_equal(found["y"], [1, 0, 3])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "uint32"])
def test_dtypes(ask, dtype):
    x = np.array([0, 3, 7], dtype)
    for binary in {True, dtype == "float16"}:
        found = outputs_of(ask("infer", request("square", binary, x=x), model_name="square"))["y"]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, x * x)


def test_integers_as_numbers(ask):
    x = np.array([1, -2, 1 << 30], np.int64)
    found = outputs_of(ask("infer", request("square", False, False, x=x), model_name="square"))["y"]
    np.testing.assert_array_equal(found, x * x)


def test_large_arrays_and_empty_ones(ask):
    x = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    for answer in (True, False):
        found = outputs_of(ask("infer", request("square.vjp", True, answer, x=x, dy=x), model_name="square.vjp"))
        np.testing.assert_array_equal(found["dx"], 2 * x * x)
    empty = np.empty((2, 0), np.float32)
    for binary in (True, False):  # this client sends an empty binary tensor as null
        assert outputs_of(ask("infer", request("square", binary, x=empty), model_name="square"))["y"].shape == (2, 0)


def test_nan_and_infinity(ask):
    x = np.array([math.nan, math.inf], np.float32)
    for answer in (True, False):
        found = outputs_of(ask("infer", request("square", True, answer, x=x), model_name="square"))["y"]
        np.testing.assert_array_equal(found, x)


def test_outputs_and_attributes(ask):
    at = {"x": np.array([2.0], np.float32), "z": np.array([3.0], np.float32)}
    wanted = [RequestedOutput("dz", {"binary_data": False}), RequestedOutput("dx")]
    response = ask("infer", request("squares.vjp", outputs=wanted, **at), model_name="squares.vjp")
    assert [(output.name, output.as_numpy().item()) for output in response.outputs] == [("dz", 24), ("dx", 36)]
    data = request("gradient_reversal.vjp", parameters={"strength": 2.5}, x=X)
    found = outputs_of(ask("infer", data, model_name="gradient_reversal.vjp"))
    assert found["dx"].tolist() == [[-2.5] * 3]


def test_readiness(ask):
    assert ask("is_server_live") is True
    assert ask("is_server_ready") is True
    assert ask("is_model_ready", "square.vjp") is True
    assert ask("is_model_ready", "nobody") is False


@pytest.mark.parametrize(
    ("model", "arrays", "status", "message"),
    [
        ("nobody", {"x": X}, 404, "unknown model 'nobody'"),
        ("square", {"z": X}, 400, "inputs.z"),
        ("square.vjp", {"x": X, "dy": DY[0]}, 400, "expected [1, 3], got [3]"),
        ("square.vjp", {"x": X, "dy": DY.astype(np.float64)}, 400, "expected FP32, got FP64"),
        ("log1pexp", {"x": X.astype(np.int32)}, 400, "got INT32"),
    ],
)
def test_errors(ask, model, arrays, status, message):
    with pytest.raises(httpx.HTTPStatusError) as raised:
        ask("infer", request(model, **arrays), model_name=model)
    assert raised.value.response.status_code == status
    assert message in str(raised.value)
