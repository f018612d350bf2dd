"""Headers and framing: however a request comes, both services answer the same, in order, and lose nothing."""

import json
import random
import socket
import time
from itertools import count, pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fast_path.both import GET, Both
from tests.fast_path.wire import Answer, Wire, post
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

PATH = "/v1/ops/log1pexp/vjp"
TAGS = count()
JSON = "content-type: application/json"
LIVE = GET % b"/health/live"
NOT_FOUND = b"POST /v1/ops/no/vjp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}"
WRONG_METHOD = b"DELETE /v1/ops/square/vjp HTTP/1.1\r\nhost: localhost\r\n\r\n"
INVALID = post(PATH, b'{"inputs":{"z":[1.5,2.5]}}')
LARGE = post(PATH, json.dumps({"inputs": {"x": [0.5 + number for number in range(30000)]}}).encode())


def small(number: float) -> bytes:
    return post(PATH, b'{"inputs":{"x":[%.3f,1.5]}}' % (number + 0.25))


@pytest.fixture
def warmed(both) -> Both:
    """Both services, of which one has a template of ``small``."""
    both.warm(small)
    return both


def raw(head: bytes, body: bytes) -> bytes:
    """Return a request with these lines, and LEN in them replaced by the length of the body."""
    return head.replace(b"LEN", b"%d" % len(body)) + body


START = b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
HEADS = (
    b"content-length: LEN\r\n\r\n",
    b"Content-Length: LEN\r\n\r\n",
    b"CONTENT-LENGTH: LEN\r\n\r\n",
    b"content-length:LEN\r\n\r\n",
    b"content-length:  LEN\r\n\r\n",
    b"content-length: LEN \r\n\r\n",
    b"content-length:\tLEN\r\n\r\n",
    b"content-length: 0LEN\r\n\r\n",
    b"content-length: +LEN\r\n\r\n",
    b"content-length: -LEN\r\n\r\n",
    b"content-length: 0xLEN\r\n\r\n",
    b"content-length: LEN, LEN\r\n\r\n",
    b"content-length: LEN\r\ncontent-length: LEN\r\n\r\n",
    b"content-length: LEN\r\nContent-Length: 5\r\n\r\n",
    b"Content-Length: 5\r\ncontent-length: LEN\r\n\r\n",
    b"content-length: LEN\r\nCONTENT-LENGTH:5\r\n\r\n",
    b"content-length : LEN\r\n\r\n",
    b"content-length: LEN\n\r\n",
    b"content-length: LEN\r\n\n",
    b"\r\ncontent-length: LEN\r\n\r\n",
    b"Content-Type: application/json\r\ncontent-length: LEN\r\naccept: */*\r\n\r\n",
    b"accept: */*\r\ncontent-length: LEN\r\nContent-Type: application/json\r\n\r\n",
    b"content-type: text/plain\r\ncontent-length: LEN\r\n\r\n",
    b"content-type: application/json\r\ncontent-type: text/plain\r\ncontent-length: LEN\r\n\r\n",
    b"accept: application/vnd.safetensors\r\ncontent-length: LEN\r\n\r\n",
    b"accept: text/html\r\ncontent-length: LEN\r\n\r\n",
    b"transfer-encoding: chunked\r\ncontent-length: LEN\r\n\r\n",
    b"content-length: LEN\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"content-length: LEN\r\nTransfer-Encoding: identity\r\n\r\n",
    b"content-length: LEN\r\nexpect: 100-continue\r\n\r\n",
    b"content-length: LEN\r\nExpect: x\r\n\r\n",
    b"Connection: close\r\ncontent-length: LEN\r\n\r\n",
    b"content-length: LEN\r\nconnection: keep-alive, CLOSE\r\n\r\n",
    b"content-length: LEN\r\nproxy-connection: close\r\n\r\n",
    b"content-length: LEN\r\nconnection: keep-alive\r\n\r\n",
    b"content-length: LEN\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    b"content-length: LEN\r\nx-request-id: mine\r\n\r\n",
    b"content-length: LEN\r\nX-REQUEST-ID: a b\r\n\r\n",
    b"content-length: LEN\r\nPullback-Deadline-Ms: 100000\r\n\r\n",
    b"content-length: LEN\r\nPullback-Deadline-Ms: x\r\n\r\n",
    b"content-length: LEN\r\norigin: http://localhost\r\n\r\n",
    b"content-length: LEN\r\nOrigin: http://evil.example\r\n\r\n",
    b"content-length: LEN\r\nhost: evil.example\r\n\r\n",
    b"content-length: LEN\r\ncontent-encoding: gzip\r\n\r\n",
    b"content-length: LEN\r\ncontent-encoding: identity\r\n\r\n",
    b"content-length: LEN\r\nx: a\r\n b\r\n\r\n",
    b"content-length: LEN\r\nx: a\r\x00b\r\n\r\n",
    b"content-length: LEN\r\nx: \xff\xfe\r\n\r\n",
    b"content-length: LEN\r\n: empty\r\n\r\n",
    b"content-length: LEN\r\nno colon\r\n\r\n",
    b"content-length: LEN\r\nx: " + b"y" * 1800 + b"\r\n\r\n",
    b"content-length: LEN\r\nx: " + b"y" * 3000 + b"\r\n\r\n",
    b"x: " + b"y" * 2100 + b"\r\ncontent-length: LEN\r\n\r\n",
    b"x: y\nContent-Length: 5\r\ncontent-length: LEN\r\n\r\n",
    b"x: y\r\ncontent-length: LEN\r\nx-request-id : z\r\n\r\n",
)
STARTS = (
    START.replace(b"HTTP/1.1", b"HTTP/1.0"),
    START.replace(b"HTTP/1.1", b"HTTP/1.2"),
    START.replace(b"HTTP/1.1", b"HTTP/1.1 "),
    START.replace(b"POST", b"post"),
    START.replace(b"POST", b"PUT"),
    START.replace(b"POST ", b"POST  "),
    START.replace(b"/vjp", b"/vjp?x=y"),
    START.replace(b"/vjp", b"/vjp#z"),
    START.replace(b"/vjp", b"/vj%70"),
    START.replace(b"/vjp", b"/vjp/"),
    START.replace(b"/v1", b"//v1"),
    START.replace(b"/v1", b"http://localhost/v1"),
    START.replace(b"/vjp", b"/vjp \x7f"),
    START.replace(b"Host: localhost\r\n", b""),
    START.replace(b"localhost", b"evil.example"),
    START.replace(b"localhost", b"127.0.0.1:1"),
    b"\r\n" + START,
)
ALL_HEADS = (*(START + head for head in HEADS), *(start + HEADS[0] for start in STARTS))


def test_heads(both):
    """Each is asked in a loop, then with bodies that the loop did not have.

    They share a test, so that the connections of those that are refused end at the same time.
    """
    for number, head in enumerate(ALL_HEADS):
        tagged = head.replace(b"\r\n", b"\r\nx-tag: head %d\r\n" % number, 1) if head.startswith(b"P") else head
        for turn in range(10):
            body = b'{"inputs":{"x":[%d.5,1.5]}}' % turn
            if both.exchange(raw(tagged, body))[0].is_last and turn > 3:
                break
        for body in (b'{"inputs":{"x":[1e39,1.5]}}', b'{"inputs":{"x":[0.25,1.5]}}\r\n\r\n'):
            both.exchange(raw(tagged, body))


@pytest.mark.parametrize(
    "text", [b"\r\nContent-Length: 5\r\n", b"\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"]
)
def test_a_body_that_looks_like_a_head(warmed, text):
    tag = f"x-tag: {next(TAGS)}"
    for number in range(10):
        body = b'{"inputs":{"x":[%d.5,1.5]}}%b' % (number, text)
        warmed.exchange(post(PATH, body, JSON, tag))
        body = b'{"inputs":{"x":[%d.5,%b1.5]}}' % (number, b"\r\n\r\n" if text == b"\r\n\r\n" else b"\r\n")
        warmed.exchange(post(PATH, body, JSON, tag))


@pytest.mark.parametrize("wrong", [-1, 1, 5, -5, 100])
def test_a_wrong_length(warmed, wrong):
    request = small(3)
    body = request.partition(b"\r\n\r\n")[2]
    altered = request.replace(b"content-length: %d" % len(body), b"content-length: %d" % (len(body) + wrong))
    warmed.on_new(small(1), altered, LIVE, half_close=True, pause_s=0.02)


def smuggled() -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"
        % PATH.encode()
    )


@pytest.mark.parametrize(
    "data",
    [
        smuggled() + b"5c\r\nGPOST / HTTP/1.1\r\n\r\n0\r\n\r\n",
        small(1)[:-1] + small(2),
        small(1) + b"x" + small(2),
        small(1) + b"\r\n" + small(2),
        small(1) + b"\r\n\r\n\r\n" + small(2),
        small(1).replace(b"content-length", b"content-length: 1\r\ncontent-length"),
        small(1).replace(b"\r\nhost", b"\nhost") + small(2),
        b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(small(1)) + small(1) + small(2),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_smuggled_requests(warmed, data, together):
    """Sent with the requests around them, or on their own."""
    if together:
        warmed.on_new(small(7) + data + small(8), half_close=True)
    else:
        warmed.on_new(small(7), data, small(8), half_close=True, pause_s=0.03)


def test_every_split(warmed):
    """A request in two parts, cut at every byte."""
    request = small(5)
    with warmed.takes(20):
        for cut in range(1, len(request)):
            warmed.exchange(request[:cut], request[cut:], pause_s=0.002)


def test_the_head_and_the_body(warmed):
    for number in range(20):
        head, _, body = small(number).partition(b"\r\n\r\n")
        warmed.exchange(head + b"\r\n\r\n", body, pause_s=0.005)
        warmed.exchange(head, b"\r\n\r\n", body[:9], body[9:], pause_s=0.003)


@pytest.mark.parametrize("number", range(2, 21, 3))
def test_pipelined(warmed, number):
    requests = [small(each) for each in range(number)]
    answers = warmed.exchange(b"".join(requests), count=number)
    assert answers == warmed.same(*requests)
    # In two sends, cut in the middle of one; and one request in each send, without waiting.
    data = b"".join(requests)
    for cut in (1, len(data) // 2, len(data) - 3, len(requests[0]), len(requests[0]) + 4):
        assert warmed.exchange(data[:cut], data[cut:], count=number, pause_s=0.01) == answers
    assert warmed.exchange(*requests, count=number) == answers


def test_requests_of_one_turn(warmed):
    """Sent one by one without waiting, several may be read in one turn of the event loop."""
    for number in range(40):
        others = [LIVE, NOT_FOUND, small(number), INVALID, small(number + 0.5), WRONG_METHOD, small(3), LARGE, small(1)]
        random.Random(number).shuffle(others)
        warmed.exchange(*others, count=len(others))


@pytest.mark.slow
def test_a_slow_body(warmed):
    for cut in (-1, -10):
        warmed.exchange(small(1), small(2)[:cut], small(2)[cut:], count=2, pause_s=0.2)
        warmed.exchange(small(2)[:cut], small(2)[cut:] + small(3), count=2, pause_s=0.2)


def test_a_body_that_drips(warmed):
    """Its bytes are counted from the first one: the general path gets the request after a moment."""
    request = small(2)
    with warmed.takes(0, 0):
        warmed.exchange(request[:-8], *(bytes([byte]) for byte in request[-8:]), pause_s=0.03)


@pytest.mark.parametrize("cut", [-1, -12])
@pytest.mark.parametrize("pause_s", [0.0, 0.1])
def test_a_body_that_never_ends(warmed, cut, pause_s):
    warmed.on_new(small(1), small(2)[:cut], half_close=True, pause_s=pause_s)
    free = both_free(warmed)
    assert free[0] == free[1]


def both_free(both: Both) -> list[bytes]:
    """Return what the metrics of each service tell of requests that are not answered."""
    found: list[bytes] = []
    for service in both.services:
        until = time.monotonic() + PATIENCE_S
        with Wire(service.port) as wire:
            while True:
                wire.send(GET % b"/metrics")
                lines = [
                    line for line in wire.answer().body.splitlines() if b"in_flight" in line or b"queue_size" in line
                ]
                values = [line for line in lines if not line.startswith(b"#")]
                if all(line.endswith((b" 0.0", b" 1.0")) for line in values) or time.monotonic() > until:
                    break
        found.append(b"\n".join(values))
    return found


@pytest.mark.thorough
def test_half_closed(warmed):
    for _ in range(5):
        for data in (small(1), small(1) + small(2), LIVE + small(2)):
            warmed.on_new(small(0), data, half_close=True, pause_s=0.02)


def test_a_client_that_leaves(warmed):
    """Its answer is dropped, and the next client gets the right one."""
    for number in range(30):
        for service in warmed.services:
            with Wire(service.port) as wire:
                wire.send(small(number))
                if number % 2:
                    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        warmed.same(small(number + 0.5))


def test_other_requests_between(warmed):
    others = (LIVE, NOT_FOUND, WRONG_METHOD, INVALID, LARGE, post(PATH, b"{"), GET % b"/v1/ops")
    for number, other in enumerate(others * 3):
        with warmed.takes(2, 2) if other is LIVE else warmed.takes(1):
            warmed.same(small(number), other, small(number + 0.5))


def test_a_garbled_request_ends_the_connection(warmed):
    for garbage in (b"\x00\x01\r\n\r\n", b"POST\r\n\r\n", b"POST / HTTP/9\r\n\r\n", b"GET * HTTP/1.1\r\n\r\n"):
        warmed.on_new(small(1), garbage, pause_s=0.02)
        warmed.on_new(small(1) + garbage)


PIECES = st.lists(st.sampled_from(["small", "live", "large", "invalid", "method"]), min_size=1, max_size=8)
CUTS = st.lists(st.floats(0, 1), max_size=4)


def check_framing(both: Both, config: settings) -> None:
    known = {"live": LIVE, "large": LARGE, "invalid": INVALID, "method": WRONG_METHOD}

    @settings(config, suppress_health_check=list(HealthCheck))
    @given(PIECES, CUTS, st.sampled_from([0.0, 0.0, 0.001]))
    def check(names: list[str], cuts: list[float], pause_s: float) -> None:
        data = b"".join(known.get(name) or small(number) for number, name in enumerate(names))
        places = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
        pieces = [data[start:stop] for start, stop in pairwise(places)]
        both.exchange(*pieces, count=len(names), pause_s=pause_s)

    check()


def test_any_framing(warmed):
    check_framing(warmed, settings(max_examples=60, deadline=None, database=None, derandomize=True))


@pytest.mark.thorough
def test_any_framing_thoroughly(warmed):
    check_framing(warmed, settings(max_examples=3000, deadline=None, database=None))


def test_answers_name_different_requests(warmed):
    """The ids of both paths come from one count."""
    with Wire(warmed.services[0].port) as wire:
        answers: list[Answer] = []
        for number in range(30):
            wire.send(small(number) if number % 3 else LIVE)
            answers.append(wire.answer())
        assert len({*wire.ids}) == len(answers)
        prefixes = {request_id.partition(b"-")[0] for request_id in wire.ids}
        assert len(prefixes) == 1


@pytest.mark.slow
def test_the_date_is_that_of_the_second(warmed):
    with Wire(warmed.services[0].port) as wire:
        seen = set[bytes]()
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            wire.send(small(1))
            data = b""
            while b"\r\n\r\n" not in data or not data.endswith(b"\n"):
                data += wire.socket.recv(1 << 16)
            seen.add(data.partition(b"date: ")[2].partition(b"\r\n")[0])
            time.sleep(0.05)
        assert len(seen) >= 2, seen
