"""``tritonclient.http.InferenceServerClient``: all its calls."""

import math

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
X = np.array([[0.5, -1.25, 3.0]], np.float32)
DY = np.array([[1.0, 2.0, -0.5]], np.float32)
# Roundings of one number in σ(x) dy: an exponential (2), a sum, a quotient and a product.
ROUNDINGS = 6


@pytest.fixture(scope="module")
def client(url):
    with triton.InferenceServerClient(url.removeprefix("http://"), concurrency=4) as one:
        yield one


def infer_input(name, array, binary=True):
    tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    return tensor.set_data_from_numpy(array, binary_data=binary)


def inputs(binary=True, **arrays):
    return [infer_input(name, array, binary) for name, array in arrays.items()]


def refusal(call, *args, **more):
    with pytest.raises(InferenceServerException) as raised:
        call(*args, **more)
    return raised.value


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("answer", [True, False])
def test_a_gradient(client, native, binary, answer):
    selection = [triton.InferRequestedOutput("dx", binary_data=answer)]
    result = client.infer("log1pexp.vjp", inputs(binary, x=X, dy=DY), outputs=selection, request_id="7")
    dx = result.as_numpy("dx")
    expected = native("log1pexp", "vjp", inputs={"x": X.tolist()}, cotangents={"y": DY.tolist()})
    np.testing.assert_array_equal(dx, expected["gradients"]["x"])
    assert np.all(np.abs(dx - sigmoid(X) * DY) <= ROUNDINGS * 2.0**-23 * np.abs(DY))
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("7", "log1pexp.vjp", "1")
    assert ("parameters" in result.get_output("dx")) == answer


def test_a_derivative_of_a_derivative(client):
    ddx = np.array([[2.0, 1.0, -1.0]], np.float32)
    result, s = client.infer("log1pexp.vjp.vjp", inputs(x=X, dy=DY, ddx=ddx)), sigmoid(X)
    np.testing.assert_allclose(result.as_numpy("dx"), s * (1 - s) * DY * ddx, rtol=8 * 2.0**-23)
    np.testing.assert_allclose(result.as_numpy("ddy"), s * ddx, rtol=8 * 2.0**-23)


def test_every_derivative(client):
    x, ones = X.reshape(3), np.ones(3, np.float32)
    for model, arrays, name, expected in (
        ("square", {"x": x}, "y", x * x),
        ("square.vjp", {"x": x}, "dx", 2 * x),
        ("square.jvp", {"x": x, "tx": ones}, "ty", 2 * x),
        ("square.hvp", {"x": x, "vx": x}, "hx", 2 * x),
        ("square.hvp", {"x": x, "vx": x, "dy": x}, "hx", 2 * x * x),
        ("square.jacobian", {"x": x}, "dy_dx", np.diag(2 * x)),
        ("square.hessian", {"x": x}, "ddx_dx", 2 * np.eye(3)),
    ):
        found = client.infer(model, inputs(**arrays)).as_numpy(name)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected, err_msg=model)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("answer", [True, False])
def test_floats(client, dtype, answer):
    x = np.array([0.5, -3, 1.25], dtype)
    selection = [triton.InferRequestedOutput("y", binary_data=answer)]
    for binary in {True, dtype is ml_dtypes.bfloat16}:  # this client sends bfloat16 only as bytes
        found = client.infer("square", inputs(binary, x=x), outputs=selection).as_numpy("y")
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, x * x)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(client, dtype):
    x = np.array([0, 3, 11], dtype)
    for binary in (True, False):
        found = client.infer("square", inputs(binary, x=x)).as_numpy("y")
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, x * x)


def test_bools(client):
    x, mask = np.float32([1, 2, 3]), np.array([True, False, True])
    for binary in (True, False):
        found = client.infer("masked", inputs(binary, x=x, mask=mask)).as_numpy("y")
        np.testing.assert_array_equal(found, [1, 0, 3])
        found = client.infer("masked.vjp", inputs(binary, x=x, mask=mask, dy=x * x)).as_numpy("dx")
        np.testing.assert_array_equal(found, [1, 0, 9])


def test_what_is_no_number(client):
    x = np.array([math.nan, math.inf, -math.inf], np.float32)
    plain = [triton.InferRequestedOutput("y", binary_data=False)]
    for outputs in (None, plain):
        found = client.infer("square", inputs(x=x), outputs=outputs).as_numpy("y")
        np.testing.assert_array_equal(found, np.array([math.nan, math.inf, math.inf], np.float32))


@pytest.mark.parametrize("packed", ["gzip", "deflate"])
@pytest.mark.parametrize("unpacked", [None, "gzip", "deflate"])
def test_compression(client, packed, unpacked):
    for count, binary in ((3, True), (200_000, True), (3, False), (20_000, False)):
        x = np.arange(count, dtype=np.float64)
        more = {"request_compression_algorithm": packed, "response_compression_algorithm": unpacked}
        result = client.infer("square", inputs(binary, x=x), **more)
        np.testing.assert_array_equal(result.as_numpy("y"), x * x)


def test_large_and_empty_arrays(client):
    x = np.random.default_rng(0).normal(size=(1000, 1000)).astype(np.float32)
    found = client.infer("square.vjp", inputs(x=x, dy=x)).as_numpy("dx")
    np.testing.assert_array_equal(found, 2 * x * x)
    for shape in ((0,), (2, 0, 3)):
        for binary in (True, False):
            empty = np.empty(shape, np.float32)
            assert client.infer("square", inputs(binary, x=empty)).as_numpy("y").shape == shape


def test_many_at_once(client):
    xs = [np.array([k, k + 1], np.float32) for k in range(12)]
    pending = [client.async_infer("square", inputs(x=x), request_id=str(k)) for k, x in enumerate(xs)]
    for k, one in enumerate(pending):
        result = one.get_result(timeout=30)
        assert result.get_response()["id"] == str(k)
        np.testing.assert_array_equal(result.as_numpy("y"), xs[k] ** 2)
    with pytest.raises(InferenceServerException, match="unknown tensor"):
        client.async_infer("square", inputs(z=X)).get_result()


def test_outputs_are_selected_and_ordered(client):
    at = inputs(x=np.array([2.0], np.float32), z=np.array([3.0], np.float32))
    every = client.infer("squares.hessian", at)
    names = [output["name"] for output in every.get_response()["outputs"]]
    assert names == ["ddx_dx", "ddx_dz", "ddz_dx", "ddz_dz"]
    assert [every.as_numpy(name).item() for name in names] == [18, 24, 24, 8]
    selection = [triton.InferRequestedOutput("dz", binary_data=False), triton.InferRequestedOutput("dx")]
    some = client.infer("squares.vjp", at, outputs=selection)
    assert [output["name"] for output in some.get_response()["outputs"]] == ["dz", "dx"]
    assert (some.as_numpy("dz").item(), some.as_numpy("dx").item()) == (24, 36)
    assert some.as_numpy("y") is None
    only = client.infer("squares.vjp", at, outputs=[triton.InferRequestedOutput("dx")]).get_response()["outputs"]
    assert [output["name"] for output in only] == ["dx"]


def test_attributes_are_parameters(client):
    x = np.array([1.0, 2.0], np.float32)
    for strength in (2, 0.5):
        result = client.infer("gradient_reversal.vjp", inputs(x=x), parameters={"strength": strength})
        assert result.as_numpy("dx").tolist() == [-strength, -strength]
    message = str(refusal(client.infer, "gradient_reversal.vjp", inputs(x=x), parameters={"strengt": 1}))
    assert message.startswith("[400] parameters.strengt: ")
    assert "strength" in message


def test_priority_timeout_and_sequences(client):
    x = np.array([1.0, 2.0], np.float32)
    for more in ({"priority": 3}, {"timeout": 20_000_000}):
        assert client.infer("square", inputs(x=x), **more).as_numpy("y").tolist() == [1, 4]
    assert refusal(client.infer, "square", inputs(x=x), sequence_id=1, sequence_start=True).status() == "400"
    slow = inputs(x=np.array(1.0, np.float32))
    assert refusal(client.infer, "sleepy", slow, timeout=100_000).status() == "504"


def test_request_bodies_and_responses_without_infer(client, url):
    body, length = client.generate_request_body(inputs(x=X))
    assert length
    headers = {"Inference-Header-Content-Length": length}
    # The client has no public way to send them.
    response = client._post("v2/models/square/infer", body, headers, None)
    header = int(response.get("Inference-Header-Content-Length"))
    found = client.parse_response_body(response.read(), header_length=header)
    np.testing.assert_array_equal(found.as_numpy("y"), X * X)


def test_the_server_and_its_models(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("square.vjp")
    assert client.is_model_ready("square.vjp", "1")
    assert not client.is_model_ready("square.vjp", "2")
    assert not client.is_model_ready("nobody")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    index = client.get_model_repository_index()
    assert {"name": "square.vjp", "version": "1", "state": "READY", "reason": ""} in index


@pytest.mark.parametrize("version", ["", "1"])
def test_metadata_and_configuration(client, version):
    metadata = client.get_model_metadata("square.vjp", version)
    x, dy, dx = ({"name": name, "datatype": "FP32", "shape": [-1]} for name in ("x", "dy", "dx"))
    assert (metadata["inputs"], metadata["outputs"], metadata["versions"]) == ([x, dy], [dx], ["1"])
    config = client.get_model_config("square.vjp", version)
    assert (config["input"][1]["name"], config["input"][1]["optional"]) == ("dy", True)
    for entry in client.get_model_repository_index():
        assert client.get_model_metadata(entry["name"], version)["name"] == entry["name"]


@pytest.mark.parametrize(
    ("method", "args", "message"),
    [
        ("load_model", ["square"], "cannot be loaded"),
        ("unload_model", ["square"], "cannot be loaded"),
        ("get_trace_settings", ["square"], "tracing is not supported"),
        ("update_trace_settings", ["square", {"trace_level": ["TIMESTAMPS"]}], "tracing is not supported"),
        ("update_log_settings", [{"log_verbose_level": 1}], "PULLBACK_LOG"),
        ("get_system_shared_memory_status", ["r"], "shared memory is not supported"),
        ("register_system_shared_memory", ["r", "/r", 64], "shared memory is not supported"),
        ("get_cuda_shared_memory_status", ["r"], "shared memory is not supported"),
        ("register_cuda_shared_memory", ["r", "aGFuZGxl", 0, 64], "shared memory is not supported"),
        ("get_model_metadata", ["nobody"], "unknown model 'nobody'"),
        ("get_model_metadata", ["square", "2"], "expected version 1"),
        ("get_model_config", ["squar"], "square"),
        ("get_inference_statistics", ["square"], "statistics are not supported: GET /metrics"),
        ("get_inference_statistics", [], "unknown model"),
    ],
)
def test_unsupported_calls(client, method, args, message):
    error = refusal(getattr(client, method), *args)
    assert error.status() == "404"
    assert message in error.message()


def test_no_shared_memory_is_registered(client):
    assert client.get_system_shared_memory_status() == []
    assert client.get_cuda_shared_memory_status() == []
    for name in ("", "r"):
        client.unregister_system_shared_memory(name)
        client.unregister_cuda_shared_memory(name)


def shared(name="x"):
    return [triton.InferInput(name, [3], "FP32").set_shared_memory("r", 12)]


def test_classes_are_refused(client):
    outputs = [triton.InferRequestedOutput("y", class_count=2)]
    error = refusal(client.infer, "square", inputs(x=X), outputs=outputs)
    assert (error.status(), "classes are not supported" in error.message()) == ("400", True)


@pytest.mark.parametrize(
    ("model", "tensors", "more", "message"),
    [
        ("nobody", {"x": X}, {}, "[404] unknown model 'nobody'"),
        ("square", {"x": X}, {"model_version": "3"}, "[404] expected version 1, got '3'"),
        ("square", {"z": X}, {}, "[400] inputs.z"),
        ("square.vjp", {"dy": DY}, {}, "[400] missing input x"),
        (
            "square.vjp",
            {"x": X, "dy": DY[0]},
            {},
            "[400] inputs.dy: shape mismatch; expected [1, 3], got [3]",
        ),
        ("square.vjp", {"x": X, "dy": DY.astype(np.float64)}, {}, "[400] expected FP32, got FP64"),
        ("log1pexp", {"x": X.astype(np.int32)}, {}, "[400] expected one of FP32, FP64, FP16, BF16, got INT32"),
        ("square", {"x": np.array([b"x"], np.object_)}, {}, "[400] BYTES"),
        ("square.jvp", {"x": X}, {}, "[400] at least one of tx"),
        ("square", {"x": X}, {"outputs": [triton.InferRequestedOutput("q")]}, "[400] outputs.q"),
    ],
)
def test_errors(client, model, tensors, more, message):
    error = refusal(client.infer, model, inputs(**tensors), **more)
    status, words = message[:6], message[6:]
    assert str(error).startswith(status)
    assert words in error.message()


def test_shared_memory_is_refused(client):
    assert "shared memory is not supported" in refusal(client.infer, "square", shared()).message()
