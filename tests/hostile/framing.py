"""HTTP framing: unusual but valid, so that the answers must not differ; and wrong, so that any refusal is right."""

import random
from collections.abc import Callable, Sequence

from tests.hostile.attack import Attack
from tests.hostile.requests import Request
from tests.hostile.witness import Good

PAUSE_S = 0.004
UPGRADES = (
    (
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
    ),
    ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
    ("UPGRADE: TLS/1.2", "Connection:  upgrade "),
)
HARMLESS_HEADERS = (
    "X-Empty:",
    "x-spaces:   a b  ",
    "x-latin: \xe9",
    "TE: trailers",
    "Cookie: a=b; c",
    "x-long: " + "y" * 9000,
)


def cut(rng: random.Random, data: bytes, most: int = 6) -> tuple[bytes, ...]:
    """Return the data in random pieces, half the time with a cut inside the head."""
    near = data.find(b"\r\n\r\n") + 4 if rng.random() < 0.5 else len(data)
    places = sorted(rng.randrange(1, max(2, near)) for _ in range(rng.randint(0, most - 1)))
    return tuple(data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True) if start < end)


def chunked(rng: random.Random, request: Request, *more: str) -> bytes:
    """Return a request with its body in chunks, sometimes with extensions and trailers."""
    out, rest = request.head("transfer-encoding: chunked", *more), request.body
    while rest:
        size = rng.choice([1, 2, 7, 64, 1000, len(rest)])
        chunk, rest = rest[:size], rest[size:]
        extension = rng.choice([b"", b"", b";a", b';a="b"'])
        out += (b"%x" if rng.random() < 0.5 else b"%X") % len(chunk) + extension + b"\r\n" + chunk + b"\r\n"
    return out + b"0\r\n" + rng.choice([b"", b"x-trailer: a\r\n", b"expires: 0\r\nx-a:\r\n"]) + b"\r\n"


def harmless(rng: random.Random, goods: Sequence[Good]) -> Attack:
    """Return good requests in an unusual framing, whose answers must not differ."""
    good = rng.choice(goods)
    request = good.request
    match rng.randrange(7):
        case 0:
            kind, data = "in pieces", request.encode()
        case 1:
            kind, data = "with Upgrade", request.encode(*rng.choice(UPGRADES))
        case 2:
            kind, data = "chunked", chunked(rng, request) if request.body else request.encode()
        case 3:
            kind, data = "with Expect", request.encode("Expect: 100-continue")
        case 4:
            kind, data = "after CRLF", b"\r\n" * rng.randint(1, 3) + request.encode()
        case 5:
            kind, data = "with headers", request.encode(*rng.sample(HARMLESS_HEADERS, 3))
        case _:
            return _pipelined(rng, goods)
    return Attack(f"framing, {kind}", cut(rng, data), PAUSE_S, (good,), method=request.method)


def _pipelined(rng: random.Random, goods: Sequence[Good]) -> Attack:
    chosen = tuple(rng.choice(goods) for _ in range(rng.randint(2, 4)))
    upgrade = rng.randrange(8)
    data = b"".join(
        good.request.encode(*(rng.choice(UPGRADES) if number == upgrade else ())) for number, good in enumerate(chosen)
    )
    return Attack("framing, pipelined", cut(rng, data, 4), PAUSE_S, chosen)


Breaking = Callable[[random.Random, Request], bytes]

METHODS = (b"GET", b"POST", b"CONNECT", b"OPTIONS", b"TRACE", b"G\x00T", b"get", b"PRI", b"A" * 300, b"")
TARGETS = (
    *(b"?", b"", b"*", b"//", b"http://", b"http://[", b"a b", b"/%", b"/%ff%00", b"/v1/ops/\xff", b"/\x00"),
    *(b"/v1/ops/../../health", b"localhost:80", b"/v1/ops?\xed\xa0\x80", b"/v1/ops#x", b"http://a:b@c:99999/"),
    *(b"/" + b"a" * 70_000, b"/v1/ops/" + b"%41" * 9_000, b"/v1/ops/a.b.c.d.e/vjp", b"/tesseract//apply"),
)
LENGTHS = ("-1", "+5", "0x5", "1e3", "", "5, 5", "9" * 30, str(1 << 63), "٣", "0", "\x00")
CHUNKS = (
    *(b"g\r\n", b"-1\r\na\r\n", b"ffffffffffffffff\r\na", b"5\nhello\n0\n\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"5\r\nhel"),
    *(b"0\r\n" + b"a: b\r\n" * 9_000, b"1;" + b"x" * 70_000, b"1\r\na\r\n" * 3_000, b" 5\r\nhello\r\n", b"0\r\nx: y"),
    *(
        b"00000000000000000001\r\na\r\n",
        b"5;a=\x00\r\nhello\r\n0\r\n\r\n",
        b"0\r\n\r\nGET /health/live HTTP/1.1\r\nhost: a",
    ),
)
CODINGS = ("chunked", "gzip, chunked", "chunked, chunked", "identity", "Chunked", "chunked\r\ntransfer-encoding: x")
NOISE = (b"\r", b"\n", b"\r\n", b"\x00", b"\xff", b":", b" ", b"\r\n\r\n", b"\t")
HEADERS = (
    *("a" * 70_000 + ": b", "a: " + "b" * 70_000, "\r\n".join(f"a{i}: b" for i in range(5_000)), ": b", "a b: c", "a"),
    *("a: b\r\n c", " folded", "host: b", "host:", "a: \x01", "connection: close, keep-alive, \xff", "expect: 200-ok"),
    *("accept: " + "q," * 2_000, "accept: a/b;q=0", "accept: ;;;;", "content-type: text/html", "range: bytes=0-1"),
    *("pullback-deadline-ms: 0", "pullback-deadline-ms: -1", "pullback-deadline-ms: 1", "x-request-id: \xff\x00"),
    *("pullback-deadline-ms: " + "9" * 40, "x-request-id: " + "i" * 5_000, "accept-encoding: gzip;q=0, *"),
    *("content-encoding: gzip", "inference-header-content-length: 99999999", "origin: null", "host: evil.example"),
    *("authorization: Bearer " + "k" * 9_000, "cookie: " + "a=b;" * 2_000, "upgrade: h2c\r\nconnection: upgrade"),
)
LINES = (
    *(
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\n\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ),
    *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1 \r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n", b"\x00" * 100),
    *(
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET / http/1.1\r\n\r\n",
        b"\r\n" * 40_000,
        b"A" * 70_000,
    ),
    *(b"GET / HTTP/1.\r\n\r\n", b"GET /health/live HTTP/1.0\r\n\r\n", b"\r\n\r\n\r\n"),
)


def _target(rng: random.Random, request: Request) -> bytes:
    return rng.choice(METHODS) + b" " + rng.choice(TARGETS) + b" HTTP/1.1\r\nhost: localhost\r\n\r\n" + request.body


def _length(rng: random.Random, request: Request) -> bytes:
    real = len(request.body)
    twice = (f"{real}\r\ncontent-length: {real + 1}", f"{real}\r\ntransfer-encoding: chunked", str(real + 1))
    return request.head(f"content-length: {rng.choice((*LENGTHS, *twice, str(max(0, real - 1))))}") + request.body


def _chunk(rng: random.Random, request: Request) -> bytes:
    return request.head(f"transfer-encoding: {rng.choice(CODINGS)}") + rng.choice(CHUNKS)


def _noise(rng: random.Random, request: Request) -> bytes:
    data = bytearray(request.encode())
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(data))
        data[place:place] = rng.choice(NOISE)
    return bytes(data)


def _flip(rng: random.Random, request: Request) -> bytes:
    data = bytearray(request.encode())
    head = max(1, len(data) - len(request.body))
    for _ in range(rng.randint(1, 5)):
        data[rng.randrange(head)] = rng.randrange(256)
    return bytes(data)


def _headers(rng: random.Random, request: Request) -> bytes:
    return request.encode(rng.choice(HEADERS))


def _line(rng: random.Random, request: Request) -> bytes:
    return rng.choice(LINES) + rng.choice([b"", request.encode()])


BREAKING: dict[str, Breaking] = {
    "wrong target": _target,
    "wrong length": _length,
    "wrong chunk": _chunk,
    "noise": _noise,
    "flipped head": _flip,
    "wrong headers": _headers,
    "wrong line": _line,
}


def broken(rng: random.Random, goods: Sequence[Good]) -> Attack:
    """Return a request in a wrong framing."""
    kind = rng.choice([*BREAKING])
    data = BREAKING[kind](rng, rng.choice(goods).request)
    if rng.random() < 0.15:
        data = data[: rng.randrange(1, len(data) + 1)]
    pieces = cut(rng, data, 3) if rng.random() < 0.3 else (data,)
    return Attack(f"framing, {kind}", pieces, PAUSE_S if len(pieces) > 1 else 0.0)
