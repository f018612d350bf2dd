"""Ops of rows and whole calls: in every format, with values that the op refuses, and beside other requests."""

import base64
import contextlib
import json
import random
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.tensors import safetensors
from tests.fast_path.both import Both, Requests
from tests.fast_path.test_batches import in_turns
from tests.fast_path.test_requests import SAFETENSORS, check_taken
from tests.fast_path.wire import Wire, post, with_head
from tests.http.openinference_client import LENGTH, OCTETS, binary, in_json

pytestmark = pytest.mark.slow

Arrays = Mapping[str, np.ndarray]
Draw = Callable[[np.random.Generator], Arrays]
FEATURES = np.arange(18.0, dtype=np.float32).reshape(1, 3, 3, 2)


def of(shape: tuple[int, ...]) -> Draw:
    return lambda rng: {"x": rng.uniform(-3, 3, shape).astype(np.float32)}


def entropy(rng: np.random.Generator) -> Arrays:
    return {"logits": rng.uniform(-3, 3, (2, 3)).astype(np.float32), "labels": rng.integers(0, 3, 2, np.int32)}


def symmetric(rng: np.random.Generator) -> Arrays:
    a = rng.uniform(-3, 3, (3, 3)).astype(np.float32)
    return {"a": a + a.T}


def regions(rng: np.random.Generator) -> Arrays:
    """Return two regions of features that all requests have, or of other ones."""
    corners = np.sort(rng.integers(0, 3, (2, 2, 2)), axis=1).reshape(2, 4)
    rois = np.concatenate([np.zeros((2, 1)), corners], axis=1).astype(np.float32)
    return {"features": FEATURES if rng.random() < 0.5 else FEATURES * rng.uniform(-1, 1), "rois": rois}


def convolution(rng: np.random.Generator) -> Arrays:
    x = rng.uniform(-3, 3, (1, 3, 4, 1)).astype(np.float32)
    return {"x": x, "f": np.array([[[[1, 1]], [[-1, 1]]], [[[1, -1]], [[-1, -1]]]], np.float32)}


OPS: Mapping[str, tuple[Draw, Mapping[str, Any]]] = {
    "safe_norm": (of((2, 3)), {}),
    "softmax_cross_entropy": (entropy, {}),
    "self_adjoint_eig": (symmetric, {}),
    "conv_eig": (convolution, {}),
    "roi_pool": (regions, {"pooled_height": 2, "pooled_width": 2}),
    "zero_out": (of((5,)), {}),
    "relu": (of((5,)), {}),
    "clip_gradient": (of((4,)), {"by": "norm"}),
}


def plain(path: str, tensors: Arrays, attrs: Mapping[str, Any]) -> bytes:
    return post(path, json.dumps({"inputs": {n: x.tolist() for n, x in tensors.items()}, "attrs": attrs}).encode())


def typed(path: str, tensors: Arrays, attrs: Mapping[str, Any], *, as_base64: bool = False) -> bytes:
    def tensor(x: np.ndarray) -> Any:
        content = {"base64": base64.b64encode(x.tobytes()).decode()} if as_base64 else {"data": x.reshape(-1).tolist()}
        return {"dtype": x.dtype.name, "shape": list(x.shape)} | content

    return post(path, json.dumps({"inputs": {n: tensor(x) for n, x in tensors.items()}, "attrs": attrs}).encode())


def in_safetensors(path: str, tensors: Arrays, attrs: Mapping[str, Any]) -> bytes:
    named = {f"inputs/{name}": x for name, x in tensors.items()}
    body = b"".join(bytes(part) for part in safetensors.lay_out(named, {"attrs": attrs}).pieces())
    return with_head(path, SAFETENSORS, body)


FORMS = {
    "plain": plain,
    "typed": typed,
    "base64": partial(typed, as_base64=True),
    "safetensors": in_safetensors,
}


def requests_for(op: str, form: Callable[..., bytes], operation: str = "vjp") -> Requests:
    draw, attrs = OPS[op]
    return lambda count: form(f"/v1/ops/{op}/{operation}", draw(np.random.default_rng(count)), attrs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", OPS)
def test_an_op_in_a_format(both: Both, op: str, form: str):
    check_taken(both, requests_for(op, FORMS[form]))


@pytest.mark.parametrize("op", OPS)
def test_all_results_of_an_op(both: Both, op: str):
    """Those of other dtypes, such as the places of maxima, too."""
    check_taken(both, requests_for(op, plain, "forward"))


@pytest.mark.parametrize("in_binary", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_open_inference(both: Both, op: str, in_binary: bool):
    def request(count: int) -> bytes:
        draw, attrs = OPS[op]
        tensors, path = dict(draw(np.random.default_rng(count))), f"/v2/models/{op}/infer"
        if in_binary:
            body, headers = binary(tensors, parameters=attrs)
            return with_head(path, (f"content-type: {OCTETS}", f"{LENGTH}: {headers[LENGTH]}"), body)
        return post(path, json.dumps({"inputs": in_json(tensors), "parameters": attrs}).encode())

    check_taken(both, request)


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("op", ["safe_norm.vjp", "zero_out.vjp"])
def test_a_derived_op(both: Both, op: str, shape: tuple[int, ...]):
    """The cotangent of one norm is a number without a list, so it is a part of the template."""

    def request(count: int) -> bytes:
        rng = np.random.default_rng(count)
        dy = np.asarray(1.5) if (size := shape[:-1] if "norm" in op else shape) == () else rng.uniform(-3, 3, size)
        return plain(f"/v1/ops/{op}/vjp", {"x": rng.uniform(-3, 3, shape), "dy": dy}, {})

    check_taken(both, request)


def test_umbridge(both: Both):
    def request(count: int) -> bytes:
        x = np.random.default_rng(count).uniform(-3, 3, 3).tolist()
        body = {"name": "safe_norm", "input": [x], "config": {"shape": {"x": [3]}}, "outWrt": 0, "inWrt": 0}
        return post("/Gradient", json.dumps(body | {"sens": [1.5]}).encode())

    check_taken(both, request)


def test_integers_for_floats(both: Both):
    """As JavaScript writes 3.0; a template takes either."""

    def request(count: int) -> bytes:
        return post("/v1/ops/square/vjp", b'{"inputs": {"x": [%d, 4, 5]}}' % count)

    check_taken(both, request)
    with both.takes(1):
        both.same(post("/v1/ops/square/vjp", b'{"inputs": {"x": [3.5, 4, -5e1]}}'))


LABELS = ("2", "0.0", "-0", "1e0", "20e-1", "3", "-1", "1.5", "1e300", "2147483648", "18446744073709551616", "null")


def test_labels_as_the_general_path_reads_them(both: Both):
    """Whole numbers in any form; what is none, or out of range, is refused in the same words."""
    requests = requests_for("softmax_cross_entropy", plain)
    check_taken(both, requests)
    form = b'{"inputs": {"logits": [[0.5, 1.5, -2.5], [0.25, 0.5, 0.75]], "labels": [%b, 0]}, "attrs": {}}'
    for label in LABELS:
        (answer,) = both.same(post("/v1/ops/softmax_cross_entropy/vjp", form % label.encode()))
        assert answer.status == (200 if label in LABELS[:5] else 422)
    check_taken(both, requests)


def test_values_that_an_op_refuses(both: Both):
    """Its own check sees each request; those beside it are answered."""
    requests = requests_for("self_adjoint_eig", in_safetensors)
    check_taken(both, requests)
    wrong = in_safetensors("/v1/ops/self_adjoint_eig/vjp", {"a": np.full((3, 3), np.nan, np.float32)}, {})
    (refused,) = both.same(wrong)
    turn = [wrong if number % 5 == 3 else requests(number) for number in range(20)]
    [fast] = in_turns(both.services[0].port, [turn])
    assert fast == both.same(*turn)
    assert refused.status == 422


def test_shapes_in_the_body_are_constants(both: Both):
    """Equal numbers under another shape are another request."""

    def request(count: int, shape: tuple[int, int]) -> bytes:
        x = np.random.default_rng(count).uniform(-3, 3, shape).astype(np.float32)
        return typed("/v1/ops/safe_norm/vjp", {"x": x}, {})

    check_taken(both, partial(request, shape=(2, 3)))
    both.same(*(request(count, (3, 2)) for count in range(3)), request(1, (2, 3)), request(1, (1, 6)))


def test_shared_inputs_of_other_shapes_share_no_call(both: Both):
    """The filters have equal bytes, and another shape."""

    def request(count: int, shape: tuple[int, ...]) -> bytes:
        rng = np.random.default_rng(count)
        x, f = rng.uniform(-3, 3, (1, 3, 3, 1)), np.array([1.5, -2.5, 0.5, 1.25])
        return plain("/v1/ops/conv_eig/vjp", {"x": x, "f": f.reshape(shape)}, {})

    shapes = (2, 1, 1, 2), (1, 2, 1, 2)
    for shape in shapes:
        check_taken(both, partial(request, shape=shape))
    turn = [request(number, shapes[number % 2]) for number in range(16)]
    for service in both.services:
        [found] = in_turns(service.port, [turn])
        assert found == both.same(*turn)


def test_shared_inputs_of_other_shapes_have_calls_of_their_own(both: Both):
    """Rows of one shape, beside features with more channels."""
    for channels in (1, 2, 3):
        form = {"features": FEATURES[..., :1].repeat(channels, axis=3)}

        def request(count: int, form: Arrays = form) -> bytes:
            tensors = form | {"rois": regions(np.random.default_rng(count))["rois"]}
            return plain("/v1/ops/roi_pool/gradients", tensors, {"pooled_height": 1, "pooled_width": 1})

        check_taken(both, request)


def test_shared_inputs_of_other_bytes_share_no_call(both: Both):
    """Requests that arrive together, each with different features."""

    def request(count: int) -> bytes:
        tensors = {"features": FEATURES * (count + 0.5), "rois": np.array([[0, 0, 0, 2, 2], [0, 1, 1, 2, 1]])}
        return in_safetensors(
            "/v1/ops/roi_pool/forward",
            {name: x.astype(np.float32) for name, x in tensors.items()},
            {"pooled_height": 2, "pooled_width": 1},
        )

    check_taken(both, request)
    service, turn = both.services[0], [request(number) for number in range(8)]
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(service.port)) for _ in turn]
        service.process.send_signal(signal.SIGSTOP)
        for wire, data in zip(wires, turn, strict=True):
            wire.send(data)
        service.process.send_signal(signal.SIGCONT)
        fast = [wire.answer() for wire in wires]
    assert fast == both.same(*turn)


@pytest.mark.slow
@pytest.mark.parametrize("connections", [2, 64])
def test_requests_of_all_ops_at_once(both: Both, connections: int):
    rng, loops = random.Random(connections), [requests_for(op, form) for op in OPS for form in FORMS.values()]
    for loop in loops:
        both.warm(loop)
    turns = [[rng.choice(loops)(rng.randrange(10**6)) for _ in range(connections)] for _ in range(12)]
    fast = in_turns(both.services[0].port, turns)
    assert [answer for turn in fast for answer in turn] == both.same(*(each for turn in turns for each in turn))
