"""A lone request is computed at once; while others are in progress, a request waits to be batched."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import orjson
import pytest

from app.autodiff.evaluation import Evaluation
from app.execution import batching
from app.http.link import CONNECTION, Link
from app.runtime.modes import KeyedArrays
from tests.http.handlers import request_of
from tests.http.in_process import post, running

BODY = orjson.dumps({"inputs": {"x": [0.5, 1.5]}, "cotangents": {"y": [1.0, 2.0]}})
PATH = "/v1/ops/log1pexp/vjp"


def within_requests(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Evaluation]]:
    """Return a list of the calls that run within their request; others run in a callback, or on a thread."""
    calls, compute = list[Sequence[Evaluation]](), batching.compute

    def seen(evaluations: Sequence[Evaluation]) -> list[KeyedArrays]:
        with suppress(RuntimeError):  # there is no loop on this thread
            calls.extend([evaluations] if asyncio.current_task() else [])
        return compute(evaluations)

    monkeypatch.setattr(batching, "compute", seen)
    return calls


@pytest.mark.parametrize(("under_way", "at_once"), [({1}, 3), ({1, 2}, 0)])
def test_a_lone_request_runs_at_once(under_way, at_once, monkeypatch):
    monkeypatch.setattr(batching, "INLINE_S", 60.0)  # on a busy machine too
    calls = within_requests(monkeypatch)

    async def test() -> list[bytes]:
        async with running() as app:

            async def ask() -> bytes:
                return await post(app, PATH, BODY, **{CONNECTION: Link(under_way)})

            first = await ask()  # its duration is not known yet
            second = await ask()
            assert first == second
            before = len(calls)
            answers = [await ask() for _ in range(3)]
            assert len(calls) - before == at_once
            return [first, *answers]

    answers = asyncio.run(test())
    assert len(set(answers)) == 1
    assert b"gradients" in answers[0]


@pytest.mark.parametrize(("op", "at_once"), [("zero_out", 3), ("self_adjoint_eig", 0)])
def test_brief_arithmetic_that_shares_no_call_runs_at_once(op, at_once, monkeypatch):
    """Also while others are in progress: there is no batch to wait for. A loop of eigenvalues may take any time."""
    monkeypatch.setattr(batching, "INLINE_ALONE_S", 60.0)
    monkeypatch.setattr(batching, "INLINE_S", 60.0)
    calls = within_requests(monkeypatch)
    name = "x" if op == "zero_out" else "a"
    x = [3.5, 4.25] if op == "zero_out" else [[2.5, 0.5], [0.5, 1.25]]

    async def test() -> None:
        async with running() as app:

            async def ask(x: object) -> bytes:
                body = orjson.dumps({"inputs": {name: x}})
                return await post(app, f"/v1/ops/{op}/vjp", body, **{CONNECTION: Link({1, 2})})

            first = await ask(x)
            assert b"gradients" in first
            assert {await ask(x) for _ in range(3)} == {first}
            assert len(calls) == at_once
            # The time of another shape is not known yet.
            await ask([*x, *x, *x] if op == "zero_out" else np.eye(3).tolist())
            assert len(calls) == at_once

    asyncio.run(test())


@pytest.mark.parametrize(("link", "expected"), [(Link(), False), (Link({1}), True), (Link({1, 2}), False)])
def test_is_alone_needs_a_link(link, expected):
    request = request_of()
    request.link = link
    assert request.is_alone is expected
