"""A request leaves no reference cycles: its memory is freed at its end, without the garbage collector."""

import asyncio
import gc
from typing import Any

import orjson

from app.settings import Settings
from tests.http.handlers import application
from tests.http.in_process import post, running

REQUESTS = 20
X, DY = [0.5, 1.5], [1.0, 2.0]
NATIVE = {"inputs": {"x": X}, "cotangents": {"y": DY}}
UMBRIDGE = {"name": "log1pexp", "config": {"shape": [2]}, "input": [X]}
INFER = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": X}]}
CASES = [
    ("/v1/ops/log1pexp/vjp", NATIVE),
    ("/v1/ops/log1pexp/jacobian", {"inputs": {"x": X}}),
    ("/v1/ops/none/vjp", NATIVE),
    ("/v1/ops/log1pexp/none", NATIVE),
    ("/Gradient", {**UMBRIDGE, "outWrt": 0, "inWrt": 0, "sens": DY}),
    ("/Evaluate", {**UMBRIDGE, "input": [[1]]}),
    ("/tesseract/log1pexp/apply", {"inputs": {"x": X}}),
    ("/tesseract/log1pexp/apply", {"inputs": {"z": X}}),
    ("/v2/models/log1pexp.vjp/infer", INFER),
    ("/v2/models/log1pexp.hvp/infer", INFER),
]


async def garbage(app: Any, path: str, document: Any) -> int:
    """Return how many objects of some requests only the garbage collector can free."""
    body = orjson.dumps(document)
    await post(app, path, body)
    await asyncio.sleep(0)
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            await post(app, path, body)
            await asyncio.sleep(0)
        return gc.collect()
    finally:
        gc.enable()


def test_requests_leave_no_reference_cycles():
    async def test() -> list[int]:
        async with running() as app:
            return [await garbage(app, path, document) for path, document in CASES]

    try:
        found = asyncio.run(test())
    finally:
        gc.unfreeze()
    assert [case for case, count in zip(CASES, found, strict=True) if count >= REQUESTS] == []


def test_a_request_past_its_deadline_leaves_no_reference_cycles():
    async def late(request):
        request.deadline.start_work(until=0.0)
        await asyncio.Event().wait()

    assert asyncio.run(garbage(application(late, Settings()), "/late", {})) < REQUESTS
