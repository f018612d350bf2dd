"""Whatever numbers come first, and whatever numbers follow, the answers are those of the general path.

A writer may convert results, as UM-Bridge's does, so that a float32 has the digits of a float64. Numbers that are exact
in both dtypes have the same text either way; the template must hold for the others too.
"""

import itertools
import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.fast_path.both import Both
from tests.fast_path.test_requests import in_base64, in_safetensors, lists, typed
from tests.fast_path.wire import post, with_head
from tests.http.openinference_client import LENGTH, OCTETS, binary, in_json

TAGS = itertools.count()
DTYPES = {"float32": np.float32, "float64": np.float64}
ROUND = (0.5, -0.25, 1.0, 2.0, -3.0, 1024.0, 0.0)
RAGGED = (0.1, -0.7, 1 / 3, -2.6, 3.3, 0.7000001)
# What follows: numbers of every kind that a body can have, and whose results a response can have as numbers.
FOLLOWING = (
    *(0.1, 0.7, -1 / 3, 1e-7, -1e-30, 1e15, 123456.789, 16777217.0, -0.0, 0.0, 1.0, -2.0, 5e-324, 1.4e-45, -1e-40),
    *(1.1754944e-38, 3.4028234663852886e38, 1e38, -1e19, 1e22, 2.0**53 + 2, 0.30000000000000004, 7.038531e-26),
)
Make = Callable[[np.ndarray, np.ndarray, str, str], bytes]
"""Returns a request for a point and a direction, of a dtype, whose prefix has this tag."""


def native(form: Callable[..., bytes], **fields: object) -> Make:
    def make(x: np.ndarray, y: np.ndarray, dtype: str, tag: str) -> bytes:
        request = form(
            "/v1/ops/square/vjp", {"inputs": {"x": x}, "cotangents": {"y": y}}, dtype, outputs=True, **fields
        )
        return request.replace(b"host: localhost", b"host: localhost\r\n" + tag.encode(), 1)

    return make


def umbridge(action: str) -> Make:
    def make(x: np.ndarray, y: np.ndarray, dtype: str, tag: str) -> bytes:
        body = {"name": "square", "config": {"shape": list(x.shape), "dtype": dtype}, "input": [x.tolist()]}
        directions = {
            "Evaluate": {},
            "Gradient": {"outWrt": 0, "inWrt": 0, "sens": y.tolist()},
            "ApplyJacobian": {"outWrt": 0, "inWrt": 0, "vec": y.tolist()},
            "ApplyHessian": {"outWrt": 0, "inWrt1": 0, "inWrt2": 0, "sens": y.tolist(), "vec": x[::-1].tolist()},
        }
        return post(f"/{action}", json.dumps(body | directions[action]).encode(), tag)

    return make


def tesseract(encoding: str) -> Make:
    def make(x: np.ndarray, y: np.ndarray, dtype: str, tag: str) -> bytes:
        def array(values: np.ndarray) -> dict[str, object]:
            data = {"buffer": values.tolist(), "encoding": "json"}
            return {"object_type": "array", "shape": list(values.shape), "dtype": dtype, "data": data}

        body = {
            "inputs": {"x": array(x)},
            "vjp_inputs": ["x"],
            "vjp_outputs": ["y"],
            "cotangent_vector": {"y": array(y)},
        }
        return post("/tesseract/square/vector_jacobian_product", json.dumps(body).encode(), tag, f"accept: {encoding}")

    return make


def inference(is_binary: bool) -> Make:
    def make(x: np.ndarray, y: np.ndarray, dtype: str, tag: str) -> bytes:
        del dtype
        tensors = {"x": x, "dy": y}
        if is_binary:
            body, headers = binary(tensors)
            lines = (f"content-type: {OCTETS}", f"{LENGTH}: {headers[LENGTH]}", tag)
            return with_head("/v2/models/square.vjp/infer", lines, body)
        return post("/v2/models/square.vjp/infer", json.dumps({"inputs": in_json(tensors)}).encode(), tag)

    return make


FORMS: dict[str, Make] = {
    "lists": native(lists),
    "flat": native(lists, encoding="flat"),
    "base64 out": native(lists, encoding="base64"),
    "typed": native(typed),
    "base64": native(in_base64),
    "safetensors": native(in_safetensors),
    **{action: umbridge(action) for action in ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian")},
    "tesseract": tesseract("application/json"),
    "tesseract base64": tesseract("application/json+base64"),
    "inference": inference(is_binary=False),
    "inference binary": inference(is_binary=True),
}


def points(numbers: tuple[float, ...], size: int, dtype: str) -> Iterator[np.ndarray]:
    """Yield arrays of these numbers in turn, each of which begins at another."""
    for start in itertools.count():
        yield np.resize(np.roll(numbers, -start), size).astype(DTYPES[dtype])


@pytest.mark.slow
@pytest.mark.parametrize(("numbers", "size"), [(ROUND, 2), (RAGGED, 70)], ids=["round", "ragged"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_the_first_numbers(both: Both, form: str, dtype: str, numbers: tuple[float, ...], size: int):
    make, tag = FORMS[form], f"x-tag: first-{next(TAGS)}"
    first, following = points(numbers, size, dtype), points(FOLLOWING, size, dtype)
    both.repeat(lambda n: make(next(first), next(first), dtype, tag))
    for _ in range(len(FOLLOWING)):
        both.same(make(next(following), next(first), dtype, tag), make(next(first), next(following), dtype, tag))


@pytest.mark.parametrize("form", FORMS)
def test_ragged_numbers_get_a_template(both: Both, form: str):
    """Each form gets a template in both dtypes, so that the test above compares what it means to."""
    for dtype in DTYPES:
        numbers, tag = points(RAGGED, 3, dtype), f"x-tag: ragged-{next(TAGS)}"
        both.warm(
            lambda n, dtype=dtype, numbers=numbers, tag=tag: FORMS[form](next(numbers), next(numbers), dtype, tag)
        )
