"""Every operation, format and protocol: the fast path answers as the general path, and takes what it should."""

import base64
import json
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.tensors import safetensors
from ops import Op, discover
from tests.fast_path.both import PATIENCE, TAKEN, Both, Requests, metric
from tests.fast_path.wire import Answer, Wire, post, with_head
from tests.http.openinference_client import LENGTH, OCTETS, binary, in_json

SAFETENSORS = ("content-type: application/vnd.safetensors", "accept: application/vnd.safetensors")
SHARE = 6
DTYPES = {"float32": np.float32, "float64": np.float64}
Arrays = Mapping[str, np.ndarray]
ALL = discover().ops
ELEMENTWISE = [op for op in ALL.values() if op.batching_for(op.attrs()) == "elementwise"]
Form = Callable[..., bytes]


def numbers(count: int, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Return numbers that differ with the count, none of them an integer."""
    return np.random.default_rng(count).uniform(-3, 3, shape).astype(dtype)


def lists(path: str, tensors: Mapping[str, Arrays], dtype: str, **fields: Any) -> bytes:
    tree = {field: {name: x.tolist() for name, x in values.items()} for field, values in tensors.items()}
    return post(path, json.dumps(tree | fields | {"dtype": dtype}).encode())


def compact(path: str, tensors: Mapping[str, Arrays], dtype: str, **fields: Any) -> bytes:
    tree = {field: {name: x.tolist() for name, x in values.items()} for field, values in tensors.items()}
    return post(path, json.dumps(fields | {"dtype": dtype} | tree, separators=(",", ":")).encode())


def typed(path: str, tensors: Mapping[str, Arrays], dtype: str, **fields: Any) -> bytes:
    def tensor(x: np.ndarray) -> Any:
        return {"dtype": dtype, "shape": list(x.shape), "data": x.reshape(-1).tolist()}

    tree = {field: {name: tensor(x) for name, x in values.items()} for field, values in tensors.items()}
    return post(path, json.dumps(tree | fields | {"dtype": dtype}).encode())


def in_base64(path: str, tensors: Mapping[str, Arrays], dtype: str, **fields: Any) -> bytes:
    def tensor(x: np.ndarray) -> Any:
        return {"dtype": dtype, "shape": list(x.shape), "base64": base64.b64encode(x.tobytes()).decode()}

    tree = {field: {name: tensor(x) for name, x in values.items()} for field, values in tensors.items()}
    return post(path, json.dumps(tree | fields | {"dtype": dtype}).encode())


def in_safetensors(path: str, tensors: Mapping[str, Arrays], dtype: str, **fields: Any) -> bytes:
    named = {f"{field}/{name}": x for field, values in tensors.items() for name, x in values.items()}
    body = b"".join(bytes(part) for part in safetensors.lay_out(named, fields | {"dtype": dtype}).pieces())
    return with_head(path, SAFETENSORS, body)


FORMS: tuple[Form, ...] = (lists, compact, typed, in_base64, in_safetensors)
ENCODINGS = ("nested", "flat", "base64")


def check_taken(both: Both, requests: Requests) -> None:
    """Send a request until the fast path takes it, and check that it takes those that follow."""
    answers = both.warm(requests)
    assert {answer.status for answer in answers} == {200}
    with both.takes(SHARE - 1):  # a busy machine may displace what is brief
        both.same(*(requests(1000 + number) for number in range(SHARE)))


def native(form: Form, operation: str, op: str, shape: tuple[int, ...], dtype: str, **fields: Any) -> Requests:
    def request(count: int) -> bytes:
        x, y = numbers(count, shape, dtype), numbers(count + 10**6, shape, dtype)
        tensors: dict[str, Arrays] = {"inputs": {"x": x}}
        match operation:
            case "vjp":
                tensors["cotangents"] = {"y": y}
            case "jvp":
                tensors["tangents"] = {"x": y}
            case "hvp":
                tensors["vectors"] = {"x": y}
        return form(f"/v1/ops/{op}/{operation}", tensors, dtype, **fields)

    return request


OPERATIONS = ("vjp", "forward", "jvp", "hvp", "gradients")
# Each pair of an operation and a format, and of a format and a dtype.
IN_FORMATS = [
    (operation, form, [*DTYPES][(i + j) % 2]) for i, operation in enumerate(OPERATIONS) for j, form in enumerate(FORMS)
]


@pytest.mark.parametrize(("operation", "form", "dtype"), IN_FORMATS)
def test_an_operation_in_a_format(both, operation, form, dtype):
    check_taken(both, native(form, operation, "log1pexp", (2, 3), dtype))


@pytest.mark.parametrize("order", [2, 3, 4])
def test_gradients_of_higher_order(both, order):
    check_taken(both, native(lists, "gradients", "log1pexp", (3,), "float64", order=order))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (7,), (3, 1), (2, 2, 2), (300,), (1500,), (30, 50)])
def test_a_shape_in_an_encoding(both, shape, encoding):
    form = typed if shape == () else lists
    requests = native(form, "vjp", "square", shape, "float32", encoding=encoding)
    if shape == () and encoding != "base64":
        both.repeat(requests)
    else:
        check_taken(both, requests)


def of_slots(form: Form, op: Op) -> Requests:
    """Return requests for the vjp of an elementwise op, with numbers for each input and output."""

    def request(count: int) -> bytes:
        slots = {"inputs": op.inputs, "cotangents": op.outputs}
        tensors = {
            field: {
                slot.name: numbers(count + 10**6 * i, (5,), op.dtype_of(slot, "float32")) for i, slot in enumerate(some)
            }
            for field, some in slots.items()
        }
        return form(f"/v1/ops/{op.name}/vjp", tensors, "float32")

    return request


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_an_elementwise_op(both, op):
    check_taken(both, of_slots(in_safetensors if ELEMENTWISE.index(op) % 2 else lists, op))


def pairs(form: Form, operation: str, names: Mapping[str, str], shape: tuple[int, ...], **fields: Any) -> Requests:
    """Return requests to the op of two inputs and two outputs."""

    def request(count: int) -> bytes:
        tensors: dict[str, dict[str, np.ndarray]] = {}
        for number, (name, field) in enumerate({"x": "inputs", "z": "inputs", **names}.items()):
            tensors.setdefault(field, {})[name] = numbers(count + 10**6 * number, shape, "float64")
        return form(f"/v1/ops/paired/{operation}", tensors, "float64", **fields)

    return request


@pytest.mark.parametrize("form", FORMS)
def test_two_inputs_and_two_outputs(both, form):
    names = {"p": "cotangents", "q": "cotangents"}
    check_taken(both, pairs(form, "vjp", names, (4,), outputs=True, attrs={"a": -0.75}))


@pytest.mark.parametrize(
    "requests",
    [
        partial(pairs, operation="forward", names={}),
        partial(pairs, operation="vjp", names={"p": "cotangents"}, wrt=["z"]),
        partial(pairs, operation="gradients", names={"q": "cotangents"}),
    ],
)
def test_some_of_two_inputs_and_two_outputs(both, requests):
    check_taken(both, requests(form=lists, shape=(4,)))


def test_an_order_of_names(both):
    """The inputs change places in the body: each order has its own template."""

    def request(count: int, names: str) -> bytes:
        inputs = {name: numbers(count + ord(name), (4,)).tolist() for name in names}
        return post("/v1/ops/paired/vjp", json.dumps({"inputs": inputs}).encode())

    for names in ("xz", "zx"):
        check_taken(both, partial(request, names=names))
    both.same(*(request(count, names) for count in range(5) for names in ("xz", "zx")))


def test_an_attribute_is_a_part_of_the_template(both):
    def request(count: int, a: float) -> bytes:
        return pairs(lists, "forward", {}, (3,), attrs={"a": a})(count)

    check_taken(both, partial(request, a=0.5))
    check_taken(both, partial(request, a=2.5))
    first, second = (both.same(request(7, a))[0] for a in (0.5, 2.5))
    assert first.body != second.body


def test_other_bytes_around_the_tensors(both):
    """Bodies of one length that differ in an attribute, or in a name: each has another template."""

    def request(count: int, a: float, names: str = "xz") -> bytes:
        tensors = {name: numbers(count + 10**6 * number, (3,), "float64") for number, name in enumerate(names)}
        return in_safetensors("/v1/ops/paired/forward", {"inputs": tensors}, "float64", attrs={"a": a})

    both.warm(partial(request, a=0.5))
    for count in range(8):
        both.same(request(count, 2.5), request(count, 0.5), request(count, 0.5, "zx"), request(count, 0.5, "xy"))


@pytest.mark.parametrize("op", ["log1pexp.vjp", "log1pexp.jvp", "square.vjp.vjp"])
def test_a_derived_op(both, op):
    contract = json.loads(both.same(b"GET /v1/ops/%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % op.encode())[0].body)

    def request(count: int) -> bytes:
        names = [slot["name"] for slot in contract["inputs"]]
        inputs = {name: numbers(count + 10**6 * number, (3,)) for number, name in enumerate(names)}
        return lists(f"/v1/ops/{op}/vjp", {"inputs": inputs}, "float32")

    check_taken(both, request)


@pytest.mark.parametrize("path", ["/Evaluate", "/Gradient", "/ApplyJacobian", "/ApplyHessian"])
def test_umbridge(both, path):
    def request(count: int) -> bytes:
        x, y, z = (numbers(count + 10**6 * number, (4,), "float64").tolist() for number in range(3))
        body: dict[str, Any] = {"name": "log1pexp", "input": [x], "config": {"shape": {"x": [4]}}}
        match path:
            case "/Gradient":
                body |= {"outWrt": 0, "inWrt": 0, "sens": y}
            case "/ApplyJacobian":
                body |= {"outWrt": 0, "inWrt": 0, "vec": y}
            case "/ApplyHessian":
                body |= {"outWrt": 0, "inWrt1": 0, "inWrt2": 0, "sens": y, "vec": z}
        return post(path, json.dumps(body).encode(), "user-agent: python-requests/2.32")

    if path in ("/Evaluate", "/Gradient"):
        check_taken(both, request)
    else:
        both.repeat(request)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model", ["log1pexp", "log1pexp.vjp", "paired"])
@pytest.mark.parametrize("is_binary", [False, True])
def test_open_inference(both, model, dtype, is_binary):
    names = {"log1pexp": "x", "log1pexp.vjp": ("x", "dy"), "paired": "xz"}[model]

    def request(count: int) -> bytes:
        tensors = {name: numbers(count + 10**6 * number, (4,), dtype) for number, name in enumerate(names)}
        path = f"/v2/models/{model}/infer"
        if not is_binary:
            return post(path, json.dumps({"inputs": in_json(tensors), "id": "1"}).encode())
        body, headers = binary(tensors)
        return with_head(path, (f"content-type: {OCTETS}", f"{LENGTH}: {headers[LENGTH]}"), body)

    check_taken(both, request)


def test_a_string_that_has_a_list(both):
    """It is echoed, so it is no list of numbers."""

    def request(count: int) -> bytes:
        body = {"id": f"a [{count + 0.5}] b", "inputs": in_json({"x": numbers(count, (1,))})}
        return post("/v2/models/square/infer", json.dumps(body).encode())

    both.repeat(request)


def test_open_inference_with_a_part_in_json(both):
    """The length of the JSON is in a header of the answer."""

    def request(count: int) -> bytes:
        tensors = {"x": numbers(count, (1,)) * 10.0 ** (count % 7), "z": numbers(-count % 99, (1,))}
        outputs = [{"name": "p", "parameters": {"binary_data": True}}, {"name": "q"}]
        return post("/v2/models/paired/infer", json.dumps({"inputs": in_json(tensors), "outputs": outputs}).encode())

    both.same(*(request(count) for count in range(20)))


def test_tesseract(both):
    def tensor(x: np.ndarray) -> Any:
        buffer = base64.b64encode(x.tobytes()).decode()
        return {"shape": list(x.shape), "dtype": "float32", "data": {"buffer": buffer, "encoding": "base64"}}

    def request(count: int, endpoint: str, form: Callable[[np.ndarray], Any]) -> bytes:
        x, y = numbers(count, (3,)), numbers(count + 10**6, (3,))
        body: dict[str, Any] = {"inputs": {"x": form(x)}}
        match endpoint:
            case "vector_jacobian_product":
                body |= {"vjp_inputs": ["x"], "vjp_outputs": ["y"], "cotangent_vector": {"y": form(y)}}
            case "jacobian_vector_product":
                body |= {"jvp_inputs": ["x"], "jvp_outputs": ["y"], "tangent_vector": {"x": form(y)}}
        return post(f"/tesseract/log1pexp/{endpoint}", json.dumps(body).encode())

    for endpoint in ("apply", "vector_jacobian_product", "jacobian_vector_product"):
        for form in (tensor, np.ndarray.tolist):
            both.repeat(partial(request, endpoint=endpoint, form=form))


def example_of(op: Op, dtype: str) -> Mapping[str, Any]:
    given = op.examples[0]
    return {"inputs": dict(given.inputs), "attrs": dict(given.attrs), "dtype": dtype}


def other_bodies(op: Op, operation: str) -> Requests:
    body = json.loads(json.dumps(example_of(op, "float32"), default=np.ndarray.tolist))

    def request(count: int) -> bytes:
        return post(f"/v1/ops/{op.name}/{operation}", json.dumps(scaled(body, count)).encode())

    return request


def scaled(tree: Any, count: int) -> Any:
    """Return a document whose tensors have other numbers, as far as they are floats."""
    if isinstance(tree, dict):
        return {name: value if name == "attrs" else scaled(value, count) for name, value in tree.items()}
    if isinstance(tree, list):
        return [scaled(item, count) for item in tree]
    return tree * (1 - count / 64) if isinstance(tree, float) else tree


OTHERS = [op for op in ALL.values() if op not in ELEMENTWISE]
# Ops of whole calls and of rows take the same path for all operations.
BY_OPERATION = [(op, ("vjp", "forward", "gradients")[i % 3]) for i, op in enumerate(OTHERS)]


@pytest.mark.slow
@pytest.mark.parametrize(("op", "operation"), BY_OPERATION, ids=[op.name for op in OTHERS])
def test_another_op(both, op, operation):
    """Rows that share a call, and whole calls; on the event loop, or on the thread."""
    check_taken(both, other_bodies(op, operation))


@pytest.mark.parametrize("operation", ["vjp", "gradients", "jvp", "hvp", "jacobian", "hessian", "check"])
@pytest.mark.parametrize("op", [pytest.param(op, id=op.name, marks=pytest.mark.thorough) for op in ALL.values()])
def test_all_operations_of_all_ops(both, op, operation):
    both.repeat(other_bodies(op, operation))


@pytest.mark.parametrize("body", [{"dtype": "float16"}, {"dtype": "bfloat16"}])
def test_other_dtypes_pass_through(both, body):
    def request(count: int) -> bytes:
        return post("/v1/ops/log1pexp/vjp", json.dumps({"inputs": {"x": [0.5 + count, 1.5]}} | body).encode())

    with both.takes(0, 0):
        both.repeat(request)


def test_templates_are_dropped(both):
    """More templates than a prefix keeps: each is made again when it is needed."""
    sizes = list(range(1, 24))
    for _ in range(2):
        for size in sizes:
            both.repeat(native(lists, "forward", "square", (size,), "float32"))
    mixed = [native(lists, "forward", "square", (size,), "float32")(3) for size in sizes] * 3
    random.Random(1).shuffle(mixed)
    both.same(*mixed)


def test_refused_requests_do_not_delay_the_right_one(both):
    """They differ from it only in a name."""

    def request(name: str, count: int) -> bytes:
        body = json.dumps({"inputs": {name: [0.5 + count, 1.5]}}).encode()
        return post("/v1/ops/square/forward", body, "content-type: application/json", "x-tag: refused")

    assert {answer.status for answer in both.same(*(request("z", count) for count in range(300)))} == {422}
    assert len(both.warm(lambda count: request("x", count))) < PATIENCE // 4


def test_the_only_connection(two_services):
    """Its requests do not wait for others, which cannot come."""
    found = list[list[Answer]]()
    for service in two_services:
        with Wire(service.port) as wire:
            answers = list[Answer]()
            before = metric(wire, TAKEN)
            for count in range(PATIENCE):
                wire.send(native(lists, "forward", "square", (5,), "float64")(count))
                answers.append(wire.answer())
            assert metric(wire, TAKEN) - before >= (PATIENCE // 2 if service is two_services[0] else 0)
            found.append(answers)
    assert found[0] == found[1]
