"""Hostile binary bodies: safetensors, and the binary form of the Open Inference Protocol."""

import copy
import gzip
import json
import random
import zlib
from dataclasses import replace
from typing import Any

from tests.hostile.documents import DAMAGES, hostile_json
from tests.hostile.requests import Request
from tests.http.openinference_client import LENGTH

DTYPES = ("F16", "BF16", "F32", "F64", "I8", "I32", "I64", "U8", "BOOL", "F8_E5M2", "C64", "", "f32", None, 7)
SHAPES: tuple[Any, ...] = (
    *([], [0], [-1], [1 << 63], [1 << 62, 4], [0, 1 << 62], [1] * 9, [1.0], ["1"], None, 3, [True], [[1]], [10**30]),
)
SIZES = (0, 1, -1, 7, 1 << 20, 1 << 31, (1 << 63) - 1, 1 << 64, 1.5, "8", None, True)
# The lengths of a header that are wrong for every body.
LENGTHS = (0, 1, 7, 1 << 20, (1 << 20) + 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1)
BOMB = 64 << 20


def hostile_safetensors(rng: random.Random, body: bytes) -> bytes:
    """Return a body of safetensors with a wrong header, wrong offsets, or data of another size."""
    size = int.from_bytes(body[:8], "little")
    header, data = json.loads(body[8 : 8 + size]), body[8 + size :]
    match rng.randrange(8):
        case 0:
            return rng.choice(LENGTHS).to_bytes(8, "little") + body[8:]
        case 1:
            return max(0, size + rng.choice([-8, -1, 1, 8])).to_bytes(8, "little") + body[8:]
        case 2:
            return rng.choice(DAMAGES)(rng, body)
        case 3:
            return _written(hostile_json(rng, header), data)
        case 4:
            changed = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data + bytes(rng.randint(1, 64))
            return _written(json.dumps(header).encode(), changed)
        case _:
            return _written(_with_wrong_entry(rng, header), data)


def _written(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def _with_wrong_entry(rng: random.Random, header: dict[str, Any]) -> bytes:
    """Return the text of a header, one entry of which lies about its dtype, its shape or its offsets."""
    header = copy.deepcopy(header)
    name = rng.choice([name for name in header if name != "__metadata__"])
    entry = header[name]
    begin, end = entry["data_offsets"]
    match rng.randrange(6):
        case 0:
            entry["dtype"] = rng.choice(DTYPES)
        case 1:
            entry["shape"] = rng.choice(SHAPES)
        case 2:
            entry["data_offsets"] = rng.choice(
                [[end, begin], [begin, end + 1], [-1, end], [0, 1 << 63], [begin], [begin, end, end], None, ["0", "8"]]
            )
        case 3:
            header[rng.choice(["inputs/q", "inputs/" + "x" * 5_000, "/", "", "x", "a/b/c", "dtype"])] = dict(entry)
        case 4:
            header["__metadata__"] = rng.choice([{"pullback": "{"}, {"pullback": "[]"}, {"a": 1}, [], None, "x"])
        case _:
            del entry[rng.choice([*entry])]
    return json.dumps(header).encode()


def hostile_inference(rng: random.Random, request: Request) -> Request:
    """Return a binary inference request whose JSON or sizes lie, or whose compression is wrong."""
    size = int(dict(request.headers)[LENGTH])
    head, blobs = copy.deepcopy(request.document), request.body[size:]
    match rng.randrange(6):
        case 0:
            wrong = rng.choice(["-1", "0", "1", "x", str(size + 1), str(size - 1), str(10**18), "٣", "1e3", " ", "0x1"])
            return _with_length(request, request.body, wrong)
        case 1:
            text = hostile_json(rng, head)
            return _with_length(request, text + blobs, str(len(text)))
        case 2:
            rng.choice(head["inputs"])["parameters"] = {"binary_data_size": rng.choice(SIZES)}
        case 3:
            rng.choice(head["inputs"])["shape"] = rng.choice(SHAPES)
        case 4:
            return compressed(rng, request)
        case _:
            blobs = rng.choice(DAMAGES)(rng, blobs)
    text = json.dumps(head).encode()
    return _with_length(request, text + blobs, str(len(text)))


def compressed(rng: random.Random, request: Request) -> Request:
    """Return a request whose body is compressed: cut, of another coding, or much longer than it looks."""
    body = bytes(BOMB) if rng.random() < 0.05 else request.body
    coding, data = rng.choice([("gzip", gzip.compress(body, 1)), ("deflate", zlib.compress(body, 1))])
    data = rng.choice([data, data[:-1], data[: len(data) // 2], data + b"x", data + data, b"", zlib.compress(data)])
    coding = rng.choice([coding, coding, "gzip", "deflate", "br", "gzip, gzip", "x"])
    return replace(request, headers=(*request.headers, ("content-encoding", coding)), body=data)


def _with_length(request: Request, body: bytes, length: str) -> Request:
    headers = tuple((name, length if name == LENGTH else value) for name, value in request.headers)
    return replace(request, headers=headers, body=body)
