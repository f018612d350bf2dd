"""Speak the Open Inference Protocol, by its specification alone, and check the rules that every response keeps."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import ml_dtypes
import numpy as np

from tests.http.native_client import PLACE, SECRET, WORDS

DATATYPES: dict[str, Any] = {
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "FP32": np.float32,
    "FP64": np.float64,
    **{f"{sign}INT{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "BOOL": np.bool_,
}
OCTETS, JSON = "application/octet-stream", "application/json"
LENGTH = "inference-header-content-length"
Arrays = Mapping[str, np.ndarray]


def datatype(dtype: Any) -> str:
    return next(name for name, known in DATATYPES.items() if np.dtype(known) == np.dtype(dtype))


def tensor_heads(tensors: Arrays) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "shape": list(x.shape),
            "datatype": datatype(x.dtype),
            "parameters": {"binary_data_size": x.nbytes},
        }
        for name, x in tensors.items()
    ]


def json_values(x: np.ndarray) -> list[Any]:
    """Return the flat list of an array's elements as JSON represents them."""
    words = {str(value): word for word, value in WORDS.items()}
    return [words.get(str(value), value) for value in x.reshape(-1).tolist()]


def in_json(tensors: Arrays) -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": list(x.shape), "datatype": datatype(x.dtype), "data": json_values(x)}
        for name, x in tensors.items()
    ]


def binary(tensors: Arrays, **fields: Any) -> tuple[bytes, dict[str, str]]:
    """Return a body (JSON, then the bytes of the tensors) and its headers; it requests a binary response."""
    parameters = {"binary_data_output": True} | fields.pop("parameters", {})
    head = json.dumps({"inputs": tensor_heads(tensors), "parameters": parameters, **fields}).encode()
    return head + b"".join(x.tobytes() for x in tensors.values()), {LENGTH: str(len(head))}


def post(client: httpx.Client, model: str, content: bytes, headers: Mapping[str, str] | None = None) -> httpx.Response:
    return client.post(f"/v2/models/{model}/infer", content=content, headers=headers)


def ask(client: httpx.Client, model: str, /, **body: Any) -> httpx.Response:
    return post(client, model, json.dumps(body).encode())


def infer(client: httpx.Client, model: str, tensors: Arrays, **fields: Any) -> dict[str, np.ndarray]:
    """Return the output tensors of a model; request and response are binary."""
    return tensors_of(post(client, model, *binary(tensors, **fields)), model)


def infer_json(client: httpx.Client, model: str, tensors: Arrays, **fields: Any) -> dict[str, np.ndarray]:
    """Return the output tensors of a model; request and response are JSON."""
    return tensors_of(ask(client, model, inputs=in_json(tensors), **fields), model)


def tensors_of(response: httpx.Response, model: str) -> dict[str, np.ndarray]:
    """Return the tensors of a response, which must match the specification exactly."""
    assert response.status_code == 200, response.text
    length = response.headers.get(LENGTH)
    assert response.headers["content-type"] == (JSON if length is None else OCTETS)
    head = response.content[: int(length or len(response.content))]
    document = json.loads(head, parse_constant=lambda word: 1 / 0)
    assert (document["model_name"], document["model_version"]) == (model.partition("/")[0], "1")
    assert set(document) <= {"id", "model_name", "model_version", "outputs"}
    tensors, at = {}, len(head)
    for output in document["outputs"]:
        dtype, shape = np.dtype(DATATYPES[output["datatype"]]), output["shape"]
        if "data" in output:
            assert set(output) == {"name", "datatype", "shape", "data"}
            flat = np.array([WORDS.get(x, x) for x in output["data"]], object if dtype.kind in "iu" else np.float64)
            tensors[output["name"]] = flat.astype(dtype).reshape(shape)
            continue
        assert set(output) == {"name", "datatype", "shape", "parameters"}
        end = at + output["parameters"].pop("binary_data_size")
        assert not output["parameters"]
        tensors[output["name"]] = np.frombuffer(response.content[at:end], dtype).reshape(shape)
        at = end
    assert at == len(response.content)
    return tensors


def expect_error(response: httpx.Response, status: int, *parts: str) -> str:
    """Return the sentence of an error, which must have the protocol's form and contain these parts."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == JSON
    document = json.loads(response.content, parse_constant=lambda word: 1 / 0)
    assert list(document) == ["error"]
    sentence = document["error"]
    assert sentence
    assert sentence.isprintable()
    assert len(sentence) <= 900
    assert not SECRET.search(PLACE.sub("", sentence)), sentence
    for part in parts:
        assert part in sentence, sentence
    return sentence


def assert_same(actual: Arrays, expected: Arrays, bits: bool = True) -> None:
    assert list(actual) == list(expected)
    for name, value in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (value.dtype, value.shape), name
        if bits:
            assert actual[name].tobytes() == value.tobytes(), name
        else:  # JSON has one NaN, without a sign
            np.testing.assert_array_equal(actual[name], value, strict=True)


def select(tensors: Arrays, names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: tensors[name] for name in names}
