"""Compressed bodies of the Open Inference Protocol, valid and hostile, and its limit errors."""

import gzip
import json
import socket
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import Malformed
from app.routes.openinference import compression
from tests.http.openinference_client import LENGTH, assert_same, binary, expect_error, in_json, post, tensors_of
from tests.patience import PATIENCE_S

MIB = 1 << 20
CODINGS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gzip": (gzip.compress, gzip.decompress),
    "deflate": (zlib.compress, zlib.decompress),
}
X = np.array([1.5, -2.0, 3.0], np.float32)
BODY, HEADERS = binary({"x": X})
LARGE = np.random.default_rng(5).integers(-9, 9, 400_000).astype(np.float32)


def post_compressed(
    client: httpx.Client, body: bytes, coding: str, headers: dict[str, str] = HEADERS
) -> httpx.Response:
    """Post a body that is already compressed."""
    return post(client, "square", body, {**headers, "content-encoding": coding, "accept-encoding": "identity"})


@pytest.mark.slow
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("x", [X, LARGE, LARGE[:0]], ids=["small", "large", "empty"])
def test_compressed_requests_are_inflated(client, coding, x):
    pack = CODINGS[coding][0]
    body, headers = binary({"x": x})
    assert_same(tensors_of(post_compressed(client, pack(body), coding, headers), "square"), {"y": x * x})
    text = json.dumps({"inputs": in_json({"x": x})}).encode()
    assert_same(tensors_of(post_compressed(client, pack(text), coding, {}), "square"), {"y": x * x})


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 70_000), st.sampled_from(["gzip", "deflate"]), st.integers(0, 9))
def test_compressed_requests_of_any_size(client, size, coding, level):
    """The sizes include those around the steps in which a body is inflated."""
    x = np.arange(size, dtype=np.float32) % 97
    body, headers = binary({"x": x})
    packed = gzip.compress(body, level) if coding == "gzip" else zlib.compress(body, level)
    assert_same(tensors_of(post_compressed(client, packed, coding, headers), "square"), {"y": x * x})


def raw_answer(client: httpx.Client, body: bytes, headers: dict[str, str]) -> tuple[dict[str, str], bytes]:
    """Return the headers and the raw bytes of a response, which httpx would inflate."""
    with client.stream("POST", "/v2/models/square/infer", content=body, headers=headers) as response:
        assert response.status_code == 200
        return dict(response.headers), b"".join(response.iter_raw())


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_responses_are_compressed_for_a_single_accepted_coding(client, coding, x):
    body, headers = binary({"x": x})
    response_headers, packed = raw_answer(client, body, {**headers, "accept-encoding": coding})
    assert response_headers["content-encoding"] == coding
    assert int(response_headers["content-length"]) == len(packed)
    plain = CODINGS[coding][1](packed)
    response = httpx.Response(200, content=plain, headers={k: response_headers[k] for k in ("content-type", LENGTH)})
    assert_same(tensors_of(response, "square"), {"y": x * x})


@pytest.mark.parametrize("accept", ["gzip, deflate", "*", "br", "identity", "gzip;q=0"])
def test_other_responses_are_not_compressed(client, accept):
    response_headers, body = raw_answer(client, BODY, {**HEADERS, "accept-encoding": accept})
    assert "content-encoding" not in response_headers
    assert body[int(response_headers[LENGTH]) :] == (X * X).tobytes()


def test_other_codings_are_415(client):
    for coding in ("br", "gzip, deflate", "x-gzip", "compress"):
        expect_error(post_compressed(client, BODY, coding), 415, "gzip or deflate", coding)
    assert_same(tensors_of(post_compressed(client, BODY, "identity"), "square"), {"y": X * X})


HOSTILE: list[tuple[str, bytes, str]] = [
    ("gzip", BODY, "compressed with gzip"),
    ("gzip", zlib.compress(BODY), "compressed with gzip"),
    ("deflate", gzip.compress(BODY), "compressed with deflate"),
    ("deflate", zlib.compress(BODY)[2:-4], "compressed with deflate"),  # raw deflate, as some clients send it
    ("gzip", b"", "truncated body"),
    ("gzip", gzip.compress(BODY)[:-9], "truncated body"),
    ("gzip", gzip.compress(BODY)[:-1], "truncated body"),
    ("deflate", zlib.compress(LARGE.tobytes())[:-5], "truncated body"),
    ("gzip", gzip.compress(BODY) + b"garbage", "nothing after the end"),
    ("gzip", gzip.compress(BODY) * 2, "nothing after the end"),
    ("gzip", gzip.compress(BODY) + bytes(300_000), "got 300000 bytes"),
    ("deflate", zlib.compress(BODY) + b"\0", "got 1 bytes"),
    ("gzip", gzip.compress(BODY)[:-8] + bytes(8), "compressed with gzip"),  # another checksum
    ("deflate", zlib.compress(BODY)[:-4] + bytes(4), "compressed with deflate"),
    ("gzip", gzip.compress(BODY + b"\0"), "12 bytes of tensors"),
    ("gzip", gzip.compress(BODY[:20]), "at least"),
]


@pytest.mark.parametrize(("coding", "body", "part"), HOSTILE, ids=range(len(HOSTILE)))
def test_invalid_compression_is_400(client, coding, body, part):
    expect_error(post_compressed(client, body, coding), 400, part)


def test_a_body_that_inflates_to_nothing_is_inflated_in_steps():
    # Endless empty deflate blocks.
    flush = zlib.compressobj(wbits=31)
    empty = flush.compress(b"") + flush.flush(zlib.Z_FULL_FLUSH) + b"\0\0\0\xff\xff" * (1 << 17)
    inflater, steps = compression._Inflater(empty, "gzip"), 0
    while len(empty) - inflater._at > 1 << 17:
        before, steps = inflater._at, steps + 1
        assert inflater.read(1 << 16) == b""
        assert inflater._at - before <= 1 << 17
    assert steps > 4
    with pytest.raises(Malformed, match="truncated body"):
        [inflater.read(1 << 16) for _ in range(4)]


@pytest.fixture(scope="module")
def small(serve_for_module):
    """A service with small limits."""
    with serve_for_module(MAX_JSON_MB="1", MAX_BODY_MB="4", MAX_INFLIGHT_MB="8").client() as client:
        yield client


def test_a_decompression_bomb_is_413_before_it_takes_memory(small):
    bomb = zlib.compress(bytes(400 * MIB), 9)
    assert len(bomb) < MIB
    expect_error(post_compressed(small, bomb, "deflate"), 413, "4194304 bytes", "after decompression")
    expect_error(post_compressed(small, bomb, "deflate", {}), 413, "1048576 bytes", "after decompression")  # JSON alone
    assert_same(tensors_of(post_compressed(small, gzip.compress(BODY), "gzip"), "square"), {"y": X * X})


def test_inflated_bodies_count_against_the_budget(serve):
    with serve(MAX_BODY_MB="8", MAX_INFLIGHT_MB="6").client() as client:
        expect_error(
            post_compressed(client, zlib.compress(bytes(6 * MIB)), "deflate"), 503, "requests in progress hold"
        )
        assert_same(tensors_of(post_compressed(client, gzip.compress(BODY), "gzip"), "square"), {"y": X * X})


def test_limit_errors_have_the_protocols_format(small):
    x = np.zeros(5 * MIB // 4, np.float32)
    expect_error(post(small, "square", *binary({"x": x})), 413, "4194304 bytes")
    expect_error(post(small, "square", b" " * (MIB + 1)), 413, "1048576 bytes")
    assert_same(tensors_of(post(small, "square", *binary({"x": x[: MIB // 2]})), "square"), {"y": x[: MIB // 2]})
    expect_error(post(small, "square", b" " * (2 * MIB), {LENGTH: str(MIB + 1)}), 413, "1048576 bytes", "JSON")
    octets = {"content-type": "application/octet-stream"}
    expect_error(post(small, "square", b" " * (MIB + 1), octets), 413, "1048576 bytes")
    expect_error(small.post("/v2/repository/index", content=b" " * (MIB + 1), headers=octets), 413, "1048576 bytes")
    expect_error(small.post("/v2/nope", content=b" " * (MIB + 1)), 413, "1048576 bytes")


def test_the_native_api_refuses_compressed_bodies(client):
    body = gzip.compress(b'{"inputs":{"x":[1]}}')
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert client.post("/v1/ops/square/forward", content=body, headers=headers).status_code == 415


def test_chunked_bodies_are_read_and_slow_ones_are_refused(service, client):
    pieces = (BODY[at : at + 7] for at in range(0, len(BODY), 7))
    response = client.post("/v2/models/square/infer", content=pieces, headers=HEADERS)
    assert_same(tensors_of(response, "square"), {"y": X * X})
    request = (
        "POST /v2/models/square/infer HTTP/1.1\r\nhost: [::1]\r\npullback-deadline-ms: 200\r\ncontent-length: 9\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as sock:
        sock.sendall(request.encode())
        reply = sock.recv(1 << 16)
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert list(json.loads(reply.partition(b"\r\n\r\n")[2])) == ["error"]


def test_cached_json_keeps_each_requests_id(client):
    """JSON is cached, but the response has the id of its own request."""
    for number in range(300):
        body, headers = binary({"x": X}, id=f"number {number}")
        response = post(client, "square", body, headers)
        head: dict[str, Any] = json.loads(response.content[: int(response.headers[LENGTH])])
        assert head["id"] == f"number {number}"
