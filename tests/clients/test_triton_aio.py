"""``tritonclient.http.aio.InferenceServerClient``: the calls whose bodies aiohttp labels as it likes."""

import asyncio

import numpy as np
import pytest
import tritonclient.http.aio as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

X = np.array([[0.5, -1.25, 3.0]], np.float32)
DY = np.array([[1.0, 2.0, -0.5]], np.float32)


@pytest.fixture
def ask(url):
    """Call a method of the client, each time on a new event loop."""

    def run(method, *args, **more):
        async def call():
            async with triton.InferenceServerClient(url.removeprefix("http://")) as client:
                return await getattr(client, method)(*args, **more)

        return asyncio.run(call())

    return run


def inputs(binary=True, **arrays):
    tensors = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensors.append(tensor.set_data_from_numpy(array, binary_data=binary))
    return tensors


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("answer", [True, False])
def test_a_gradient(ask, native, binary, answer):
    outputs = [triton.InferRequestedOutput("dx", binary_data=answer)]
    result = ask("infer", "log1pexp.vjp", inputs(binary, x=X, dy=DY), outputs=outputs, request_id="7")
    expected = native("log1pexp", "vjp", inputs={"x": X.tolist()}, cotangents={"y": DY.tolist()})
    np.testing.assert_array_equal(result.as_numpy("dx"), expected["gradients"]["x"])
    assert result.get_response()["id"] == "7"


@pytest.mark.parametrize("packed", ["gzip", "deflate"])
def test_compressed_json(ask, packed):
    for x in (X, np.arange(100_000, dtype=np.float32)):
        result = ask("infer", "square", inputs(False, x=x), request_compression_algorithm=packed)
        np.testing.assert_array_equal(result.as_numpy("y"), x * x)


def test_attributes_and_errors(ask):
    found = ask("infer", "gradient_reversal.vjp", inputs(False, x=X), parameters={"strength": 2})
    assert found.as_numpy("dx").tolist() == [[-2] * 3]
    with pytest.raises(InferenceServerException, match="expected one of strength, mechanism, got nope"):
        ask("infer", "gradient_reversal.vjp", inputs(False, x=X), parameters={"nope": 1})


def test_concurrent_requests(url):
    async def all_of_them():
        async with triton.InferenceServerClient(url.removeprefix("http://")) as client:
            arrays = [np.full(3, value, np.float32) for value in range(50)]
            return await asyncio.gather(*(client.infer("square", inputs(False, x=array)) for array in arrays))

    results = asyncio.run(all_of_them())
    assert [result.as_numpy("y").tolist() for result in results] == [[value**2] * 3 for value in range(50)]


def test_the_server_and_its_models(ask):
    assert ask("is_server_live")
    assert ask("is_server_ready")
    assert ask("is_model_ready", "square.vjp")
    assert not ask("is_model_ready", "nobody")
    assert "binary_tensor_data" in ask("get_server_metadata")["extensions"]
    assert ask("get_model_metadata", "square.vjp")["name"] == "square.vjp"
    assert ask("get_model_config", "square.vjp")["name"] == "square.vjp"
    assert {"square", "square.vjp"} <= {entry["name"] for entry in ask("get_model_repository_index")}


@pytest.mark.parametrize(
    ("method", "args", "status", "message"),
    [
        ("load_model", ["square"], "404", "cannot be loaded"),
        ("unload_model", ["square"], "404", "cannot be loaded"),
        ("update_trace_settings", ["square", {"trace_rate": "1"}], "404", "tracing is not supported"),
        ("update_log_settings", [{"log_verbose_level": 1}], "404", "PULLBACK_LOG"),
        ("register_system_shared_memory", ["r", "/r", 64], "404", "shared memory is not supported"),
    ],
)
def test_unsupported_calls(ask, method, args, status, message):
    with pytest.raises(InferenceServerException) as raised:
        ask(method, *args)
    assert raised.value.status() == status
    assert message in raised.value.message()
