"""How much of the server's time the checks take while an application calls it."""

import asyncio
import time
from dataclasses import dataclass

import pytest

from pullback.recorder import checks
from pullback.recorder.checks import SHARE, Pace


@dataclass
class Calls:
    """What a pace asks of the traffic."""

    in_flight: int = 0
    idle_s: float = 0.0


def seconds(pace_: Pace, count: int, took: float) -> float:
    """Return how long so many evaluations wait and take, of ``took`` seconds each."""

    async def run() -> float:
        began = time.monotonic()
        for _ in range(count):
            await pace_.turn()
            await asyncio.sleep(took)
        return time.monotonic() - began

    return asyncio.run(run())


def test_evaluations_take_a_share_of_the_time() -> None:
    took = seconds(Pace(Calls()), 4, 0.004)  # type: ignore[arg-type]
    assert took >= 3 * 0.004 / SHARE


def test_an_evaluation_waits_until_nothing_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PATIENCE_S", 0.2)
    assert seconds(Pace(Calls(in_flight=1)), 1, 0.0) >= 0.2  # type: ignore[arg-type]
    assert seconds(Pace(Calls(in_flight=0)), 1, 0.0) < 0.2  # type: ignore[arg-type]


def test_while_the_application_is_idle_the_checks_go_on() -> None:
    assert seconds(Pace(Calls(idle_s=1000.0)), 20, 0.01) < 20 * 0.01 / SHARE / 4  # type: ignore[arg-type]


def test_after_the_end_nothing_waits() -> None:
    assert seconds(Pace(Calls(in_flight=1), is_free=True), 20, 0.01) < 20 * 0.01 / SHARE / 4  # type: ignore[arg-type]
