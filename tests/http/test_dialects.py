"""Every format and protocol gives the results of the native API in JSON, bit for bit, at the examples of ops."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.http import test_binary as safetensors
from tests.http import test_tesseract as tesseract
from tests.http.native_client import OF_EACH_KIND, OPERATIONS, ask
from tests.http.openinference_client import DATATYPES, assert_same, infer, infer_json

pytestmark = pytest.mark.slow

Tensors = dict[str, np.ndarray]
"""Arrays by the paths that the native API has for them, such as ``inputs/x``."""
Names = dict[str, np.ndarray]
"""Arrays by the names that a dialect has for them."""


def numpy_of(name: str) -> np.dtype:
    return np.dtype(DATATYPES["BF16"] if name == "bfloat16" else name)


def reference(client: httpx.Client, op: str, operation: str, tensors: Tensors, fields: dict[str, Any]) -> Tensors:
    """Return the tensors of the native response, without those that are null."""
    answer = ask(client, op, operation, **safetensors.in_json(tensors, fields))
    answer.pop("absent", None)
    return safetensors.flat(answer)


def requests(
    client: httpx.Client, op: str, operation: str, dtype: int | None = None
) -> Iterator[tuple[Tensors, dict[str, Any]]]:
    """Yield a request at every example, each in the next dtype; only at the first with ``dtype``."""
    contract = client.get(f"/v1/ops/{op}").json()
    for number, example in enumerate(contract["examples"][: None if dtype is None else 1], dtype or 0):
        yield at_example(client, contract, example, operation, number)


def at_example(
    client: httpx.Client, contract: dict[str, Any], example: dict[str, Any], operation: str, dtype: int
) -> tuple[Tensors, dict[str, Any]]:
    rng, slots = np.random.default_rng(3), (*contract["inputs"], *contract["outputs"])
    kinds = {slot["name"]: numpy_of(slot["dtypes"][dtype % len(slot["dtypes"])]) for slot in slots}
    several = [slot["dtypes"] for slot in slots if len(slot["dtypes"]) > 1]
    fields = {"attrs": example["attrs"]} | ({"dtype": several[0][dtype % len(several[0])]} if several else {})
    tensors = {
        f"inputs/{slot['name']}": np.array(example["inputs"][slot["name"]], np.float64).astype(kinds[slot["name"]])
        for slot in contract["inputs"]
    }
    shapes = tensors | reference(client, contract["name"], "forward", tensors, fields)
    along = {"vjp": ["cotangents"], "jvp": ["tangents"], "hvp": ["cotangents", "vectors"], "hessian": ["cotangents"]}
    for field in along.get(operation, []):
        side = "outputs" if field == "cotangents" else "inputs"
        for slot in contract[side]:
            name = slot["name"]
            if slot["differentiable"]:
                drawn = rng.integers(-8, 9, shapes[f"{side}/{name}"].shape)
                tensors[f"{field}/{name}"] = drawn.astype(kinds[name])
    return tensors, fields


def in_safetensors(client: httpx.Client, op: str, operation: str, tensors: Tensors, fields: dict[str, Any]) -> Names:
    response = safetensors.binary(client, f"{op}/{operation}", safetensors.encode(tensors, **fields))
    assert response.status_code == 200, response.text
    return safetensors.decode(response.content)[0]


LETTERS = {"cotangents": "d", "gradients": "d", "tangents": "t", "vectors": "v", "products": "h"}


def inference_name(path: str) -> str:
    match path.split("/"):
        case ["jacobian", y, x]:
            return f"d{y}_d{x}"
        case ["hessian", a, b]:
            return f"dd{a}_d{b}"
        case [field, name]:
            return LETTERS.get(field, "") + name
        case _:
            raise AssertionError(path)


def in_inference(client: httpx.Client, op: str, operation: str, tensors: Tensors, fields: dict[str, Any]) -> Names:
    """Return the tensors of the binary response, after a comparison with those of the response in JSON."""
    model = op if operation == "forward" else f"{op}.{operation}"
    ours = {inference_name(path): value for path, value in tensors.items()}
    found = infer(client, model, ours, parameters=fields["attrs"])
    assert_same(infer_json(client, model, ours, parameters=fields["attrs"]), found, bits=False)
    return found


def tesseract_request(
    client: httpx.Client, op: str, operation: str, tensors: Tensors, fields: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the endpoint and the body of a request."""
    endpoint = next(name for name, known in tesseract.NATIVE.items() if known == operation)
    named: dict[str, dict[str, Any]] = {"inputs": {}, "cotangents": {}, "tangents": {}}
    for path, value in tensors.items():
        field, name = path.split("/")
        named[field][name] = tesseract.typed(value)
    contract = client.get(f"/v1/ops/{op}").json()
    live, out = ([slot["name"] for slot in contract[side] if slot["differentiable"]] for side in ("inputs", "outputs"))
    body: dict[str, Any] = {"inputs": named["inputs"] | fields["attrs"]}
    if operation == "vjp":
        body |= {"vjp_inputs": live, "vjp_outputs": out, "cotangent_vector": named["cotangents"]}
    elif operation == "jvp":
        body |= {"jvp_inputs": live, "jvp_outputs": out, "tangent_vector": named["tangents"]}
    elif operation == "jacobian":
        body |= {"jac_inputs": live, "jac_outputs": out}
    return endpoint, body


def in_tesseract(client: httpx.Client, op: str, operation: str, tensors: Tensors, fields: dict[str, Any]) -> Names:
    endpoint, body = tesseract_request(client, op, operation, tensors, fields)
    found = tesseract.result_of(client, op, endpoint, body)
    if operation == "jacobian":
        return {f"{y}/{x}": block for y, blocks in found.items() for x, block in blocks.items()}
    return found


def tesseract_name(path: str) -> str:
    return path.partition("/")[2]


Dialect = tuple[Callable[..., Names], Callable[[str], str], tuple[str, ...]]
DIALECTS: dict[str, Dialect] = {
    "safetensors": (in_safetensors, str, OPERATIONS),
    "inference": (in_inference, inference_name, tuple(each for each in OPERATIONS if each != "gradients")),
    "tesseract": (in_tesseract, tesseract_name, tuple(tesseract.NATIVE.values())),
}


def compare(client: httpx.Client, dialect: str, op: str, operation: str, dtype: int | None = None) -> None:
    """Compare a dialect with the native API at every example; what is null there is left out here, or zeros."""
    send, name_of, _ = DIALECTS[dialect]
    for tensors, fields in requests(client, op, operation, dtype):
        found = send(client, op, operation, tensors, fields)
        expected = {name_of(path): x for path, x in reference(client, op, operation, tensors, fields).items()}
        for name in set(found) - set(expected):
            assert not found.pop(name).any()
        assert_same({name: found[name] for name in expected}, expected)


@pytest.mark.share(2)
@pytest.mark.slow
@pytest.mark.parametrize("op", OF_EACH_KIND)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_gives_the_results_of_the_native_api(client: httpx.Client, dialect: str, op: str):
    is_linear = client.get(f"/v1/ops/{op}").json()["claim"]["linear"]
    for operation in DIALECTS[dialect][2]:
        if is_linear or (operation != "jvp" and (dialect, operation) != ("tesseract", "jacobian")):
            compare(client, dialect, op, operation)


@pytest.mark.parametrize("op", ["apart", "masked", "parted", "skewed", "squares"])
def test_a_plug_in_too(plugged: httpx.Client, op: str):
    for operation in DIALECTS["inference"][2]:
        compare(plugged, "inference", op, operation)


@pytest.mark.parametrize("op", ["square", "softmax_cross_entropy", "zero_out", "roi_pool"])
def test_every_dtype_too(client: httpx.Client, op: str):
    dtypes = [slot["dtypes"] for slot in client.get(f"/v1/ops/{op}").json()["inputs"]]
    for dtype in range(max(map(len, dtypes))):
        compare(client, "inference", op, "forward", dtype)
        if "int" not in dtypes[0][dtype % len(dtypes[0])]:
            compare(client, "inference", op, "vjp", dtype)


@pytest.mark.parametrize("op", OF_EACH_KIND)
def test_requests_and_responses_of_tesseract_match_its_document(client: httpx.Client, op: str):
    document = client.get(f"/tesseract/{op}/openapi.json").json()
    offered = [known for name, known in tesseract.NATIVE.items() if f"/{name}" in document["paths"]]
    for operation in offered:
        [(tensors, fields), *_] = requests(client, op, operation)
        endpoint, body = tesseract_request(client, op, operation, tensors, fields)
        tesseract.check(document, op, endpoint, body, client)
        if operation == "forward":
            outputs = tesseract.result_of(client, op, endpoint, body)
            inputs = {path.partition("/")[2]: x for path, x in tensors.items()}
            shapes = {name: {"shape": list(x.shape), "dtype": x.dtype.name} for name, x in inputs.items()}
            body = {"inputs": shapes | fields["attrs"]}
            tesseract.check(document, op, "abstract_eval", body, client)
            promised = tesseract.send(client, op, "abstract_eval", body).json()
            assert promised == {name: {"shape": list(y.shape), "dtype": y.dtype.name} for name, y in outputs.items()}
