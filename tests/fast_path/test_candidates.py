"""What a template keeps, and that it changes no bits of what it computes."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from app.fast_path.cache import Head, TemplateCache
from app.fast_path.candidates import Candidate, NotCacheable, TemplateMaker, template_of
from app.fast_path.templates import Template
from app.http.fast_path import CANDIDATE, note_response
from tests.fast_path.forms import Form, in_base64, lists
from tests.fast_path.wire import post
from tests.http.in_process import post as call
from tests.http.in_process import running

DATE = ((b"date", b"Thu, 01 Jan 1970 00:00:00 GMT"),)
X = np.array([0.5, -1.25, 3.1])
Ask = Callable[[bytes], Candidate]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Return a function that has an application in this process answer a request, and returns it as a candidate."""
    with asyncio.Runner() as runner:
        context = running()
        app = runner.run(context.__aenter__())
        yield lambda data: runner.run(answered(app, data))
        runner.run(context.__aexit__(None, None, None))


async def answered(app: ASGIApp, data: bytes) -> Candidate:
    text, _, body = data.partition(b"\r\n\r\n")
    line, *lines = text.split(b"\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (each.partition(b":") for each in lines)]
    candidate = Candidate(Head(0), body, None, lambda _: None)

    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        cycle: Any = SimpleNamespace(send=send, default_headers=DATE)
        note_response(candidate, cycle)
        await app(scope, receive, cycle.send)

    await call(noted, line.split(b" ")[1].decode(), body, headers=headers, **{CANDIDATE: candidate})
    return candidate


def template(candidate: Candidate) -> Template:
    engine = SimpleNamespace(deadline_s=0, graphs=None, sets=None)
    return template_of(candidate, TemplateMaker(cast(Any, engine), TemplateCache()).call_of)


def of_log1pexp(form: Form, x: Any, y: Any) -> bytes:
    return form("log1pexp", "vjp", {"inputs": {"x": x}, "cotangents": {"y": y}}, "float64", "x-tag: kept")


def test_a_template_keeps_no_body_and_no_result(ask: Ask):
    one = template(ask(of_log1pexp(in_base64, np.arange(3000.0), np.arange(3000.0) + 0.5)))
    assert one.weight < 1 << 13
    assert all(not any(slot.array.strides) for slot in one.response.layout.placeholders)


def test_no_author_can_change_a_leaf_that_all_requests_have(ask: Ask):
    """A number without a list is the same in all requests of a template."""
    y = b'{"dtype": "float64", "shape": [], "data": [1.5]}'
    body = b'{"inputs": {"x": 0.5}, "cotangents": {"y": %b}, "dtype": "float64"}' % y
    one = template(ask(post("/v1/ops/log1pexp/vjp", body)))
    [kept] = [leaf for leaf in one.reader.leaves if isinstance(leaf, np.ndarray)]
    assert kept.base is None
    assert not kept.flags.writeable


def test_lists_and_arrays_share_a_call(ask: Ask):
    """No number changes its bits, not even a signalling NaN."""
    one = template(ask(lists("scale_gradient", "forward", {"inputs": {"x": X}}, "float32", "x-tag: call")))
    signalling = np.array([0x7FA00001], np.uint32).view(np.float32)
    for parts in ([[0.1, 1.5], signalling, np.array([0.7])], [signalling], [[0.1], [0.7]], [np.array([0.1])]):
        (y,) = one.call.run([[part] for part in parts], sum(map(len, parts))).values()
        assert y is not None
        assert y.tobytes() == b"".join(np.asarray(part, np.float32).tobytes() for part in parts)


def test_a_number_that_is_in_no_leaf_or_in_two_makes_no_template(ask: Ask):
    """No reader leaves such records today."""
    for form, records in product((lists, in_base64), ("one too few", "one twice")):
        candidate = ask(of_log1pexp(form, X, X / 2))
        assert candidate.exchange
        call: Any = candidate.exchange.call
        one, other = call.sources
        if form is lists and records == "one too few":
            call.sources = [one]
        else:
            other.start = one.start
        with pytest.raises(NotCacheable):
            template(candidate)


BASE64 = b'{"inputs":{"x":{"dtype":"float64","shape":[1],"base64":"%b"}},"dtype":"float64"%b}'
ROWS = b'{"inputs":{"x":[0.5,1.5]},"tangents":{"x":[[0.5,1.0],[1.5,2.0]]},"batched":true}'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("square/forward", BASE64 % (b"AAAAAAAA8D8\\u003d", b"")),
        ("square/forward", BASE64 % (b"AAAAAAAA8D8=", b',"encoding":"fl\\u0061t"')),
        ("safe_norm/jvp", ROWS),
    ],
    ids=["base64 with an escape", "base64 behind an escape", "directions of a row"],
)
def test_what_has_no_template(ask: Ask, path: str, body: bytes):
    candidate = ask(post(f"/v1/ops/{path}", body))
    assert candidate.exchange
    with pytest.raises(NotCacheable):
        template(candidate)
