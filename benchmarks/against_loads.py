"""What ``benchmarks.against`` sends: requests in every format and protocol, to every op, in several sizes.

All requests are for one vjp. Those of one load have different numbers, and texts of different lengths.
"""

import base64
import itertools
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import orjson

from benchmarks.candidates import (
    LEAST_DRAWS,
    VJP,
    Array,
    Request,
    numbers,
    pullback_base64,
    pullback_json,
    pullback_safetensors,
)
from benchmarks.cells import LARGE
from benchmarks.op_cases import CASES, SIZES, Case
from benchmarks.op_requests import points
from benchmarks.op_requests import pullback as op_request

FAST, GENERAL = "pullback", "pullback_ordinary"
"""The servers: with the fast path, and without it."""
DRAWS = 64
# No load sends more: with a repeated traceparent, a request would be an earlier one.
MOST_REQUESTS = 4000
Make = Callable[[Array, Array], Request]


class Load(NamedTuple):
    """Requests: what they are, the numbers of each, and the pairs of a server and the connections to it.

    If ``is_fresh``, they are made anew for each window.
    """

    title: str
    n: int
    requests: Callable[[], Iterable[Request]]
    cells: tuple[tuple[str, int], ...]
    is_fresh: bool = False


def drawn(make: Make, n: int) -> Iterator[Request]:
    """Yield requests with different numbers."""
    for draw in range(DRAWS if n < LARGE else LEAST_DRAWS):
        yield make(*numbers(n, draw))


def traced(make: Make, n: int) -> Iterator[Request]:
    """Yield requests, each with another traceparent, as proxies and tracing clients send them."""
    for request in itertools.islice(itertools.cycle(drawn(make, n)), MOST_REQUESTS):
        parent = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
        yield request._replace(headers={**request.headers, "traceparent": parent})


def op_requests(case: Case) -> Iterator[Request]:
    """Yield requests to an op."""
    return map(op_request, points(case, DRAWS))


def posted(path: str, document: Any, **headers: str) -> Request:
    """Return a request in JSON."""
    body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return Request(path, {"Content-Type": "application/json", **headers}, body)


def nested(x: Array, dy: Array) -> Request:
    """Lists of lists."""
    return posted(VJP, {"inputs": {"x": x.reshape(-1, 10)}, "cotangents": {"y": dy.reshape(-1, 10)}})


def typed(x: Array, dy: Array) -> Request:
    """Flat lists with their shapes."""
    x_, dy_ = ({"dtype": "float32", "shape": list(each.shape), "data": each} for each in (x, dy))
    return posted(VJP, {"inputs": {"x": x_}, "cotangents": {"y": dy_}})


def integers(x: Array, dy: Array) -> Request:
    """Numbers without a point."""
    return posted(VJP, {"inputs": {"x": (10 * x).astype(int)}, "cotangents": {"y": (10 * dy).astype(int)}})


def words(x: Array, dy: Array) -> Request:
    """Numbers, and the word for NaN."""
    return posted(VJP, {"inputs": {"x": x}, "cotangents": {"y": ["NaN", *dy[1:].tolist()]}})


def umbridge(x: Array, dy: Array) -> Request:
    """UM-Bridge."""
    config = {"shape": [x.size]}
    document = {"name": "log1pexp", "outWrt": 0, "inWrt": 0, "input": [x], "sens": dy, "config": config}
    return posted("/Gradient", document)


def tesseract(x: Array, dy: Array) -> Request:
    """Tesseract, with base64."""
    tensors = [
        {
            "object_type": "array",
            "shape": list(each.shape),
            "dtype": "float32",
            "data": {"buffer": base64.b64encode(each.tobytes()).decode(), "encoding": "base64"},
        }
        for each in (x, dy)
    ]
    names = {"vjp_inputs": ["x"], "vjp_outputs": ["y"]}
    document = {"inputs": {"x": tensors[0]}, "cotangent_vector": {"y": tensors[1]}, **names}
    return posted("/tesseract/log1pexp/vector_jacobian_product", document, Accept="application/json+base64")


def inference(x: Array, dy: Array) -> Request:
    """The Open Inference Protocol, with lists."""
    slots = {"datatype": "FP32", "shape": list(x.shape)}
    document = {"inputs": [{"name": "x", **slots, "data": x}, {"name": "dy", **slots, "data": dy}]}
    return posted("/v2/models/log1pexp.vjp/infer", document)


def inference_binary(x: Array, dy: Array) -> Request:
    """The Open Inference Protocol, in binary."""
    slots = {"datatype": "FP32", "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}
    outputs = {"parameters": {"binary_data_output": True}}
    head = json.dumps({"inputs": [{"name": "x", **slots}, {"name": "dy", **slots}], **outputs}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    return Request("/v2/models/log1pexp.vjp/infer", headers, head + x.tobytes() + dy.tobytes())


NATIVE: Mapping[str, Make] = {"JSON": pullback_json, "safetensors": pullback_safetensors}
FORMS: Mapping[str, Make] = {
    "base64": pullback_base64,
    "nested lists": nested,
    "typed lists": typed,
    "integers": integers,
    "words": words,
}
PROTOCOLS: Mapping[str, Make] = {
    "UM-Bridge": umbridge,
    "Tesseract": tesseract,
    "Open Inference": inference,
    "Open Inference, binary": inference_binary,
}


def loads() -> Iterator[Load]:
    """Yield all loads."""
    everywhere = tuple(itertools.product((FAST, GENERAL), (1, 16, 64)))
    for title, make in NATIVE.items():
        for n in (1, 10, 1000):
            yield Load(title, n, partial(drawn, make, n), everywhere)
            traces = tuple((FAST, c) for c in (1, 16, 64))
            yield Load(f"{title}, traceparent", n, partial(traced, make, n), traces, is_fresh=True)
        # Always on the general path; 64 bodies at once would be more than the service has room for.
        large = tuple((FAST, c) for c in (1, 16))
        yield Load(title, LARGE, partial(drawn, make, LARGE), large)
    some = tuple(itertools.product((FAST, GENERAL), (1, 16)))
    for title, make in FORMS.items():
        yield Load(title, 1000, partial(drawn, make, 1000), some)
    for title, make in PROTOCOLS.items():
        for n in (10, 1000):
            yield Load(title, n, partial(drawn, make, n), some)
    for case in CASES:
        cells = ((FAST, 1 if case.size == SIZES[0] else 16),)
        title = f"`{case.op}`, {case.size}"
        yield Load(title, case.numbers, partial(op_requests, case), cells)
