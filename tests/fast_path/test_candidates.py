"""Which requests get a template, and that a template answers other requests as the general path does."""

import asyncio
import base64
import gzip
import json
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from app.autodiff.padded_numbers import SHARED
from app.fast_path.cache import MAX_BODY, SEEN, Head, TemplateCache, Unknown
from app.fast_path.candidates import Candidate, NotCacheable, template_of
from app.fast_path.template_maker import TemplateMaker
from app.fast_path.templates import RangeReader, RunReader, Template
from app.http.fast_path import CANDIDATE, note_response
from app.requests.answering import Exchange
from app.settings import Settings
from ops import InvalidInput
from tests.fast_path.conftest import PLUGINS
from tests.fast_path.test_requests import compact, in_base64, in_safetensors, lists, native, typed
from tests.fast_path.wire import post, with_head
from tests.http.in_process import post as call
from tests.http.in_process import running
from tests.http.openinference_client import LENGTH, OCTETS, binary, in_json

DEADLINE_S = Settings().deadline_s
DATE = ((b"date", b"Thu, 01 Jan 1970 00:00:00 GMT"),)
JSON = "content-type: application/json"
X, Z = np.array([0.5, -1.25, 3.1]), np.array([0.1, 2.5, -7.3])
Ask = Callable[[bytes], Candidate]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Return a function that sends a request to an application in this process, and returns it as a candidate."""
    with asyncio.Runner() as runner:
        context = running(ops_path=(PLUGINS,))
        app = runner.run(context.__aenter__())
        yield lambda data: runner.run(answered(app, data))
        runner.run(context.__aexit__(None, None, None))


async def answered(app: ASGIApp, data: bytes) -> Candidate:
    text, _, body = data.partition(b"\r\n\r\n")
    line, *lines = text.split(b"\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (each.partition(b":") for each in lines)]
    candidate = Candidate(Head(0), body, None, lambda _: None)
    path = line.split(b" ")[1].decode()

    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        cycle: Any = SimpleNamespace(send=send, default_headers=DATE)
        note_response(candidate, cycle)
        await app(scope, receive, cycle.send)

    await call(noted, path, body, headers=headers, **{CANDIDATE: candidate})
    return candidate


def template(candidate: Candidate) -> Template:
    engine = SimpleNamespace(deadline_s=0, graphs=None)
    return template_of(candidate, TemplateMaker(cast(Any, engine), TemplateCache()).call_of)


def exchange_of(candidate: Candidate) -> Exchange:
    assert candidate.exchange is not None
    return candidate.exchange


def cached(one: Candidate, made: Template) -> tuple[TemplateCache, Head]:
    """Return a cache with the template of one request, under a head."""
    cache = TemplateCache()
    [*_, head] = [cache.head((b"/", b"1.1")) for _ in range(SEEN + 1)]
    assert head is not None
    cache.store(head, one.body, made)
    return cache, head


def replayed(made: Template, one: Candidate, other: Candidate) -> bytes | None:
    """Return the body of the response to another request from the template of one; ``None`` if that has none."""
    cache, head = cached(one, made)
    found = cache.find(head, other.body)
    if isinstance(found, Unknown) or found[1] is None:
        return None
    try:
        columns = made.checked(found[1]) if made.is_checked else found[1]
    except InvalidInput:
        return None
    results = made.call.run([columns], made.size, made.shapes)
    return made.response.bodies(made.call.rows(results, made.response.keys, 0, (1, made.size)))[0]


def tesseract(x: np.ndarray, y: np.ndarray, *headers: str, as_list: bool = False) -> bytes:
    def tensor(array: np.ndarray) -> Any:
        buffer = array.tolist() if as_list else base64.b64encode(array.tobytes()).decode()
        data = {"buffer": buffer, "encoding": "json" if as_list else "base64"}
        return {"object_type": "array", "shape": list(array.shape), "dtype": "float64", "data": data}

    names = {"vjp_inputs": ["x"], "vjp_outputs": ["y"]}
    body = {"inputs": {"x": tensor(x)}, "cotangent_vector": {"y": tensor(y)}} | names
    return post("/tesseract/log1pexp/vector_jacobian_product", json.dumps(body).encode(), JSON, *headers)


def tesseract_in_lists(x: np.ndarray, y: np.ndarray) -> bytes:
    return tesseract(x, y, "accept: application/json")


def umbridge_gradient(x: np.ndarray, y: np.ndarray) -> bytes:
    return umbridge(x, y, sens=(x / 2).tolist(), outWrt=0, inWrt=1)


def of_second_order(x: np.ndarray, y: np.ndarray) -> bytes:
    body = {"name": "paired", "config": {"shape": [x.size]}, "input": [x.tolist(), y.tolist()]}
    body |= {"outWrt": 1, "inWrt1": 0, "inWrt2": 0, "sens": x.tolist(), "vec": y.tolist()}
    return post("/ApplyHessian", json.dumps(body).encode())


def umbridge(x: np.ndarray, y: np.ndarray, **fields: Any) -> bytes:
    body = {"name": "paired", "config": {"shape": [x.size]}, "input": [x.tolist(), y.tolist()]} | fields
    return post("/Gradient" if "sens" in fields else "/Evaluate", json.dumps(body).encode())


def inference(x: np.ndarray, y: np.ndarray, **fields: Any) -> bytes:
    body = {"id": "a", "inputs": in_json({"x": x, "z": y})} | fields
    return post("/v2/models/paired/infer", json.dumps(body).encode(), JSON)


def in_binary(x: np.ndarray, y: np.ndarray) -> bytes:
    body, headers = binary({"x": x, "z": y})
    return with_head("/v2/models/paired/infer", (f"content-type: {OCTETS}", f"{LENGTH}: {headers[LENGTH]}"), body)


def in_both(x: np.ndarray, y: np.ndarray) -> bytes:
    """Return a request with one tensor in JSON, which stays as it is, and one in binary."""
    blob = x.tobytes()
    first: dict[str, Any] = {"name": "x", "shape": [x.size], "datatype": "FP64"}
    first |= {"parameters": {"binary_data_size": len(blob)}}
    text = json.dumps({"inputs": [first, *in_json({"z": Z})], "parameters": {"binary_data_output": True}}).encode()
    del y
    return with_head("/v2/models/paired/infer", (f"content-type: {OCTETS}", f"{LENGTH}: {len(text)}"), text + blob)


def vjp(form: Callable[..., bytes], **fields: Any) -> Callable[[np.ndarray, np.ndarray], bytes]:
    def make(x: np.ndarray, y: np.ndarray) -> bytes:
        return form("/v1/ops/log1pexp/vjp", {"inputs": {"x": x}, "cotangents": {"y": y}}, "float64", **fields)

    return make


def constant(x: np.ndarray, y: np.ndarray) -> bytes:
    """Return a request whose point is a number, which a template keeps."""
    body = {"inputs": {"x": 0.5}, "cotangents": {"y": {"dtype": "float64", "shape": [], "data": [float((x + y)[0])]}}}
    return post("/v1/ops/log1pexp/vjp", json.dumps(body | {"dtype": "float64"}).encode())


CACHED: dict[str, tuple[Callable[..., bytes], type[RunReader | RangeReader]]] = {
    **{form.__name__: (vjp(form), RunReader) for form in (lists, compact, typed)},
    **{form.__name__: (vjp(form), RangeReader) for form in (in_base64, in_safetensors)},
    **{
        f"written {encoding}": (vjp(lists, encoding=encoding, outputs=True), RunReader)
        for encoding in ("nested", "flat", "base64")
    },
    "the point is constant": (constant, RunReader),
    "Tesseract in base64": (tesseract, RangeReader),
    "Tesseract in lists": (partial(tesseract, as_list=True), RunReader),
    "Tesseract, lists in the response": (tesseract_in_lists, RangeReader),
    "UM-Bridge": (umbridge, RunReader),
    "UM-Bridge's gradient": (umbridge_gradient, RunReader),
    "Open Inference": (inference, RunReader),
    "Open Inference in binary": (in_binary, RangeReader),
    "Open Inference in both": (in_both, RangeReader),
}
EDGES = (np.array([-0.0, 7.038531e-26, 1e30]), np.array([9007199254740993.0, 5e-324, 1e22]))
HUGE = np.array([0.5, 1e200, 1.5]), np.array([0.5, 1e200, -1.5])
# As text, these bytes are lists.
BRACKETS = np.frombuffer(b"[1.5000][2.5000]" * 400)


@pytest.mark.parametrize("case", CACHED)
def test_a_template_answers_as_the_general_path(ask: Ask, case: str):
    make, reader = CACHED[case]
    first = ask(make(X, Z))
    made = template(first)
    assert isinstance(made.reader, reader)
    for x, y in ((Z, X), (X, X), EDGES, EDGES[::-1], HUGE):
        other = ask(make(x, y))
        # Of infinite results, UM-Bridge's writer makes another response.
        is_laid_out = exchange_of(other).reply.layout is not None
        assert replayed(made, first, other) == (b"".join(exchange_of(other).reply.pieces) if is_laid_out else None)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_all_orders_have_slots(ask: Ask, order: int):
    requests = native(lists, "gradients", "log1pexp", (2, 3), "float32", order=order)
    first, other = ask(requests(0)), ask(requests(1))
    made = template(first)
    assert len(made.response.keys) == order + 1
    assert replayed(made, first, other) == b"".join(exchange_of(other).reply.pieces)


def test_an_absent_derivative_is_constant(ask: Ask):
    def of(x: np.ndarray) -> bytes:
        tensors = {"inputs": {"x": x, "z": Z}, "cotangents": {"q": Z}}
        return lists("/v1/ops/paired/gradients", tensors, "float64", order=2, wrt=["x"])

    first, other = ask(of(X)), ask(of(Z))
    made = template(first)
    body = replayed(made, first, other)
    assert body == b"".join(exchange_of(other).reply.pieces)
    assert body is not None
    assert b"disconnected" in body


def test_binary_tensors_may_look_like_lists(ask: Ask):
    make = vjp(in_safetensors)
    first, other = ask(make(BRACKETS, BRACKETS)), ask(make(BRACKETS[::-1].copy(), BRACKETS * 0.5))
    assert replayed(template(first), first, other) == b"".join(exchange_of(other).reply.pieces)


@pytest.mark.parametrize(("form", "fields"), [(in_base64, {"encoding": "base64"}), (in_safetensors, {})])
def test_the_most_numbers_that_may_share_a_call_have_a_template_in_binary(
    ask: Ask, form: Callable[..., bytes], fields: dict[str, str]
):
    make, numbers = vjp(form, **fields), np.random.default_rng(0).uniform(-3, 3, (2, SHARED))
    first, other = ask(make(*numbers)), ask(make(*numbers[::-1] / 2))
    assert replayed(template(first), first, other) == b"".join(exchange_of(other).reply.pieces)
    assert len(first.body) <= MAX_BODY
    with pytest.raises(NotCacheable):
        template(ask(make(*np.ones((2, SHARED + 1)))))


def test_a_template_keeps_no_body_and_no_result(ask: Ask):
    made = template(ask(vjp(in_base64)(np.arange(3000.0), np.arange(3000.0) + 0.5)))
    assert made.weight < 1 << 13
    assert all(not any(slot.array.strides) for slot in made.response.layout.placeholders)
    first = ask(constant(X, Z))
    [kept] = [leaf for leaf in template(first).reader.leaves if isinstance(leaf, np.ndarray)]
    assert kept.base is None


def base64_of(text: str, more: str = "") -> bytes:
    body = f'{{"inputs":{{"x":{{"dtype":"float64","shape":[1],"base64":"{text}"}}}},"dtype":"float64"{more}}}'
    return post("/v1/ops/square/vjp", body.encode(), JSON)


def of_square(text: str, *headers: str, operation: str = "forward", op: str = "square") -> bytes:
    return post(f"/v1/ops/{op}/{operation}", text.encode(), JSON, *headers)


def compressed() -> bytes:
    """Return a request whose body has its tensor in plain sight, a few bytes later than it is once inflated."""
    body = gzip.compress(np.arange(8.0).tobytes(), compresslevel=0)
    headers = (f"content-type: {OCTETS}", f"{LENGTH}: 0", "content-encoding: gzip")
    return with_head("/v2/models/square/infer", headers, body)


NOT_CACHED = {
    "a number without a list": of_square('{"inputs":{"x":0.5}}'),
    "a list with a word": of_square('{"inputs":{"x":[0.5,"NaN"]}}'),
    "refused": of_square('{"inputs":{"x":[0.5,null]}}'),
    "a list in a string": inference(X, Z, id="a [0.5] b"),
    "base64 twice": vjp(in_base64)(X, X),
    "base64 with an escape": base64_of("AAAAAAAA8D8\\u003d"),
    "base64 behind an escape": base64_of("AAAAAAAA8D8=", ',"encoding":"fl\\u0061t"'),
    "compressed": compressed(),
    "another dtype": of_square('{"inputs":{"x":[0.5]},"dtype":"float16"}'),
    "steps": of_square('{"inputs":{"x":[0.5]}}', operation="jacobian"),
    "a batch": of_square('{"inputs":{"x":[0.5]},"cotangents":{"y":[[0.5],[1.5]]},"batched":true}', operation="vjp"),
    "directions of a row": of_square(
        '{"inputs":{"x":[0.5,1.5]},"tangents":{"x":[[0.5,1.0],[1.5,2.0]]},"batched":true}',
        operation="jvp",
        op="safe_norm",
    ),
    "bools in the response": of_square('{"inputs":{"x":[0.5,-1.5]}}', op="negative"),
    "a long skeleton": of_square('{"inputs":{"x":[0.5]}' + " " * 4200 + "}"),
    "a long response": of_square(json.dumps({"inputs": {"x": [0.5] * 11_000}})),
    "a part in JSON": inference(X, Z, outputs=[{"name": "p", "parameters": {"binary_data": True}}, {"name": "q"}]),
    "an infinite result": umbridge(X * 1e200, Z * 1e200),
    "zeros for an absent derivative": of_second_order(X, Z),
}


@pytest.mark.parametrize("case", NOT_CACHED)
def test_what_has_no_template(ask: Ask, case: str):
    candidate = ask(NOT_CACHED[case])
    assert (candidate.exchange is None) == (case == "refused")
    with pytest.raises(NotCacheable):
        template(candidate)


def test_the_last_response_of_a_connection_has_no_template(ask: Ask):
    candidate = ask(vjp(lists)(X, Z))
    assert candidate.headers
    for headers in ((*candidate.headers, (b"connection", b"close")), candidate.headers[1:], candidate.headers[:-1]):
        candidate.headers = headers
        with pytest.raises(NotCacheable):
            template(candidate)


def test_other_bytes_between_ranges_are_another_request(ask: Ask):
    first = ask(vjp(in_base64)(X, Z))
    made = template(first)
    cache, head = cached(first, made)
    assert not isinstance(cache.find(head, first.body), Unknown)
    for name in (b"inputs", b"cotangents", b"float64", b"[3]"):
        for at in (first.body.find(name), first.body.rfind(name)):
            body = first.body[:at] + name.swapcase().replace(b"3", b"2") + first.body[at + len(name) :]
            assert isinstance(cache.find(head, body), Unknown)


def test_no_author_can_change_a_leaf_that_all_requests_have(ask: Ask):
    for form in (lists, in_base64):
        candidate = ask(constant(X, Z)) if form is lists else ask(vjp(form)(X, Z))
        made = template(candidate)
        assert not any(leaf.flags.writeable for leaf in made.reader.leaves if isinstance(leaf, np.ndarray))


def test_a_number_that_is_in_no_leaf_or_in_two_makes_no_template(ask: Ask):
    """No reader leaves such records today."""
    for form in (lists, in_base64):
        for _ in "one", "two":
            candidate = ask(vjp(form)(X, Z))
            job = exchange_of(candidate).call
            one, other = job.sources
            if form is lists and _ == "one":
                job.sources = [one]
            else:
                other.start = one.start
            with pytest.raises(NotCacheable):
                template(candidate)


def test_lists_and_arrays_share_a_call(ask: Ask):
    """No number changes its bits, not even a signalling NaN."""
    made = template(ask(lists("/v1/ops/scale_gradient/forward", {"inputs": {"x": X}}, "float32")))
    signalling = np.array([0x7FA00001], np.uint32).view(np.float32)
    for parts in ([[0.1, 1.5], signalling, np.array([0.7])], [signalling], [[0.1], [0.7]], [np.array([0.1])]):
        (y,) = made.call.run([[part] for part in parts], sum(map(len, parts))).values()
        assert y is not None
        assert y.tobytes() == b"".join(np.asarray(part, np.float32).tobytes() for part in parts)


def test_numbers_out_of_range_and_other_lengths_are_left_to_the_general_path(ask: Ask):
    first = ask(of_square('{"inputs":{"x":[0.5,1.5]},"dtype":"float32"}'))
    made = template(first)
    cache, head = cached(first, made)
    # The first magnitudes that round to infinity do not fit either.
    first_infinite = ("3.4028235677973366e38,1.5", "-3.4028235677973366e38,1.5")
    for text, is_known in (
        *((text, True) for text in first_infinite),
        ("1e39,1.5", True),
        ("-1e39,0", True),
        ("1e999,1.5", True),
        ("1.5,true", True),
        ("1.5,2.5,3.5", False),
    ):
        found = cache.find(head, first.body.replace(b"0.5,1.5", text.encode()))
        assert found == (made, None) if is_known else isinstance(found, Unknown)
