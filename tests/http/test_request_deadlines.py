"""Deadlines end with their requests: a process would check those of all requests that it has ever answered."""

import asyncio
import contextlib
import time

import pytest

from app.errors import DeadlinePassed, Malformed, PullbackError, too_late
from app.http import front_door
from app.http.body import Budget
from app.http.deadlines import Deadline, Deadlines
from app.http.request import Request
from tests.http.handlers import limited, request_of


@pytest.mark.parametrize("error", [None, Malformed("wrong"), ZeroDivisionError()], ids=repr)
@pytest.mark.parametrize("milliseconds", ["1000", "0"])
def test_no_deadline_outlives_its_request(
    error: Exception | None, milliseconds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines, running = Deadlines(), list[int]()
    monkeypatch.setattr(front_door, "Deadlines", lambda *_: deadlines)

    async def handler(request: Request) -> None:
        running.append(len(deadlines.running))
        if error is not None:
            raise error

    async def answered() -> None:
        handle = limited(handler, Budget(1 << 20))
        for _ in range(3):
            with contextlib.suppress(PullbackError, ZeroDivisionError):
                await handle(request_of(b"{}", pullback_deadline_ms=milliseconds))

    asyncio.run(answered())
    assert not deadlines.running
    assert running == ([] if milliseconds == "0" else [1, 1, 1])


def test_a_deadline_counts_what_a_request_has_waited() -> None:
    async def answered() -> None:
        one = Deadline(Deadlines(), 60.0, asyncio.Event().wait, too_late, began=time.perf_counter() - 59.9)
        one.start_work()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            one.explain()
        finally:
            one.stop()

    with pytest.raises(DeadlinePassed):
        asyncio.run(answered())
