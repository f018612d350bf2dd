"""``open-inference-openapi``: the client that is generated from the protocol's OpenAPI document."""

import asyncio
import math

import numpy as np
import pytest
from open_inference.openapi.client import AsyncOpenInferenceClient, OpenInferenceClient
from open_inference.openapi.core.api_error import ApiError
from open_inference.openapi.errors import BadRequestError, NotFoundError
from open_inference.openapi.types import InferenceRequest, RequestInput, RequestOutput

X, DY = [0.5, -1.25, 3.0], [1.0, 2.0, -0.5]


@pytest.fixture
def client(url):
    return OpenInferenceClient(base_url=url)


def tensor(name, data, shape=(3,), datatype="FP32", parameters=None):
    return RequestInput(name=name, shape=list(shape), datatype=datatype, data=data, parameters=parameters)


def data_of(response):
    return {output.name: [float(x) for x in output.dict()["data"]] for output in response.outputs}


@pytest.mark.parametrize("version", [None, "1"])
def test_a_gradient(client, native, version):
    labels = {"content_type": "np"}
    request = InferenceRequest(
        id="7",
        inputs=[tensor("x", X, parameters=labels), tensor("dy", DY)],
        outputs=[RequestOutput(name="dx", parameters=labels)],
    )
    if version is None:
        response = client.model_infer("log1pexp.vjp", request=request)
    else:
        response = client.model_version_infer("log1pexp.vjp", version, request=request)
    expected = native("log1pexp", "vjp", inputs={"x": X}, cotangents={"y": DY})["gradients"]["x"]
    assert np.array(data_of(response)["dx"], np.float32).tolist() == expected.tolist()
    assert (response.id, response.model_name, response.outputs[0].datatype) == ("7", "log1pexp.vjp", "FP32")


def test_nested_data_attributes_and_infinities(client):
    nested = InferenceRequest(inputs=[tensor("x", [[1.0, 2.0], [3.0, 4.0]], (2, 2))])
    assert data_of(client.model_infer("square", request=nested)) == {"y": [1, 4, 9, 16]}
    request = InferenceRequest(inputs=[tensor("x", X)], parameters={"strength": 2.0})
    assert data_of(client.model_infer("gradient_reversal.vjp", request=request)) == {"dx": [-2.0] * 3}
    infinite = InferenceRequest(inputs=[tensor("x", [1e30, -1e30, 2.0])])
    assert data_of(client.model_infer("square", request=infinite))["y"] == [math.inf, math.inf, 4]


def test_the_asynchronous_client(url):
    async def call():
        client = AsyncOpenInferenceClient(base_url=url)
        await client.check_server_readiness()
        return await client.model_infer("square", request=InferenceRequest(inputs=[tensor("x", X)]))

    assert data_of(asyncio.run(call())) == {"y": [x * x for x in X]}


def test_health_and_metadata(client):
    client.check_server_liveness()
    client.check_server_readiness()
    client.check_model_readiness("square.vjp")
    client.check_model_version_readiness("square.vjp", "1")
    assert client.read_server_metadata().name == "pullback"
    metadata = client.read_model_metadata("square.vjp")
    assert [one.name for one in metadata.inputs] == ["x", "dy"]
    assert client.read_model_version_metadata("square.vjp", "1") == metadata


def test_errors(client):
    with pytest.raises(NotFoundError, match="unknown model 'nobody'"):
        client.check_model_readiness("nobody")
    with pytest.raises(BadRequestError, match="unknown tensor"):
        client.model_infer("square", request=InferenceRequest(inputs=[tensor("z", X)]))
    with pytest.raises(ApiError, match="unknown model 'nobody'"):
        client.model_infer("nobody", request=InferenceRequest(inputs=[tensor("x", X)]))
