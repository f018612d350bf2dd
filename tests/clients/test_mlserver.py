"""MLServer's types and codecs, which label tensors with ``content_type``, and its command ``mlserver infer``."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlserver.codecs import NumpyCodec, NumpyRequestCodec, PandasCodec
from mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    MetadataModelResponse,
    MetadataServerResponse,
    Parameters,
    RequestOutput,
)

X = np.array([[0.5, -1.25, 3.0]], np.float32)
DY = np.array([[1.0, 2.0, -0.5]], np.float32)


@pytest.fixture
def infer(url):
    """Send a request of MLServer's type, and return the response as MLServer's type."""

    def run(model, request):
        body = request.model_dump_json().encode()
        post = urllib.request.Request(f"{url}/v2/models/{model}/infer", body, {"content-type": "application/json"})
        with urllib.request.urlopen(post, timeout=60) as response:
            return InferenceResponse.model_validate_json(response.read())

    return run


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_numpy_codec(infer, native, dtype):
    x, dy = X.astype(dtype), DY.astype(dtype)
    request = InferenceRequest(
        id="7",
        parameters=Parameters(content_type="np", headers={"trace": "1"}),
        inputs=[NumpyCodec.encode_input(name, array) for name, array in (("x", x), ("dy", dy))],
        outputs=[RequestOutput(name="dx", parameters=Parameters(content_type="np"))],
    )
    response = infer("log1pexp.vjp", request)
    assert (response.id, response.model_name, response.model_version) == ("7", "log1pexp.vjp", "1")
    [output] = response.outputs
    fields = {"inputs": {"x": x.tolist()}, "cotangents": {"y": dy.tolist()}, "dtype": dtype}
    expected = native("log1pexp", "vjp", **fields)["gradients"]["x"]
    np.testing.assert_array_equal(NumpyCodec.decode_output(output), expected)
    np.testing.assert_array_equal(NumpyRequestCodec.decode_response(response), expected)


def test_the_request_codec_and_attributes(infer):
    request = NumpyRequestCodec.encode_request(X)
    assert request.parameters.content_type == "np"
    request.inputs[0].name = "x"
    request.parameters = Parameters(content_type="np", strength=2.5)
    assert NumpyRequestCodec.decode_response(infer("gradient_reversal.vjp", request)).tolist() == [
        (-2.5 * np.ones(3)).tolist()
    ]


def test_the_pandas_codec(infer):
    request = PandasCodec.encode_request(pd.DataFrame({"x": [1.0, 2.0], "z": [3.0, 4.0]}))
    response = infer("squares.vjp", request)
    assert {one.name: NumpyCodec.decode_output(one).reshape(-1).tolist() for one in response.outputs} == {
        "dx": [18, 64],
        "dz": [6, 32],
    }


def test_an_unknown_parameter_of_the_request_is_refused(infer):
    request = InferenceRequest(parameters=Parameters(nope=1), inputs=[NumpyCodec.encode_input("x", X)])
    with pytest.raises(urllib.error.HTTPError) as raised:
        infer("gradient_reversal", request)
    assert "expected one of strength, mechanism, got nope" in json.load(raised.value)["error"]


def test_nan_is_sent_as_null_and_refused(infer):
    request = InferenceRequest(inputs=[NumpyCodec.encode_input("x", np.array([[1.0, np.nan]]))])
    with pytest.raises(urllib.error.HTTPError) as raised:
        infer("square", request)
    assert "inputs.x.data.1: " in json.load(raised.value)["error"]


def test_metadata(url):
    def read(path, model):
        with urllib.request.urlopen(url + path, timeout=60) as response:
            return model.model_validate_json(response.read())

    assert read("/v2", MetadataServerResponse).name == "pullback"
    metadata = read("/v2/models/square.vjp", MetadataModelResponse)
    assert [tensor.name for tensor in metadata.inputs] == ["x", "dy"]


def test_mlserver_infer(url, tmp_path):
    lines, answers = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    requests = [InferenceRequest(inputs=[NumpyCodec.encode_input("x", factor * X)]) for factor in range(5)]
    lines.write_text("".join(f"{request.model_dump_json()}\n" for request in requests), encoding="utf-8")
    command = [Path(sys.executable).with_name("mlserver"), "infer", "--url", url.removeprefix("http://")]
    done = subprocess.run(
        [*command, "-m", "square", "-i", lines, "-o", answers, "--workers", "2"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    found = [InferenceResponse.model_validate_json(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    expected = {tuple((factor * X).reshape(-1) ** 2) for factor in range(5)}
    assert {tuple(NumpyCodec.decode_output(one.outputs[0]).reshape(-1)) for one in found} == expected
