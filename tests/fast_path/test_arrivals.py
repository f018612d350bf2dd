"""Requests that wait: small ones never wait for several large ones, none waits for ever, and a turn is bounded."""

import asyncio
import random
import time
from types import SimpleNamespace
from typing import cast

from app.execution.lifecycle import Lifecycle
from app.fast_path import pending
from app.fast_path.cache import Head
from app.fast_path.pending import EACH, SMALL, TURN, Pending, PendingRequest
from app.http.body import Budget
from app.http.connection import Connection
from tests.patience import PATIENCE_S, PAUSE_S


def arrival(size: int) -> PendingRequest:
    connection = cast(Connection, None)
    request = PendingRequest(connection, Head(0), None, size, 0.0)
    request.body = b"x" * size
    return request


def waiting() -> Pending:
    return Pending(Budget(1 << 30), Lifecycle())


def test_every_request_gets_a_turn_in_order():
    rng = random.Random(1)
    arrivals, put, taken = waiting(), list[PendingRequest](), list[PendingRequest]()
    for _ in range(300):
        for _ in range(rng.randrange(4)):
            put.append(arrival(rng.choice([10, SMALL, SMALL + 1, TURN, rng.randrange(2 * TURN)])))
            arrivals.put(put[-1])
        taken += arrivals.turn()
    while arrivals.small or arrivals.large:
        taken += arrivals.turn()
    assert len(taken) == len(put) == len(set(map(id, taken)))
    for is_small in (True, False):
        assert [each for each in taken if (len(each.body) <= SMALL) == is_small] == [
            each for each in put if (len(each.body) <= SMALL) == is_small
        ]


def test_a_turn_is_bounded():
    arrivals = waiting()
    for size in (TURN, 100, TURN, SMALL, TURN, *[SMALL] * 100):
        arrivals.put(arrival(size))
    first = [len(each.body) for each in arrivals.turn()]
    assert sum(size for size in first if size <= SMALL) < TURN + SMALL
    assert [size for size in first if size > SMALL] == [TURN]


def test_a_turn_has_a_bounded_number_of_requests():
    arrivals = waiting()
    for _ in range(4_000):
        arrivals.put(arrival(50))
    while arrivals.small or arrivals.large:
        assert len([*arrivals.turn()]) <= TURN // EACH


def test_small_requests_come_before_large_ones_that_wait():
    arrivals = waiting()
    for _ in range(50):
        arrivals.put(arrival(TURN))
    small = arrival(100)
    arrivals.put(small)
    assert small in [*arrivals.turn()][:1]


def test_a_request_that_has_ended_gets_no_turn():
    budget, lifecycle = Budget(1 << 30), Lifecycle()
    arrivals, one, other = Pending(budget, lifecycle), arrival(1), arrival(TURN)
    for each in (one, other):
        arrivals.begin(each)
        arrivals.put(each)
        assert (budget.free, lifecycle.in_flight) == (budget.limit - each.received, 1)
        arrivals.end(each)
        assert each.is_done
        assert (budget.free, lifecycle.in_flight) == (budget.limit, 0)
    assert [*arrivals.turn()] == []
    assert not arrivals.small
    assert not arrivals.large


def test_a_request_whose_rest_is_late_gives_back_what_it_holds_once():
    """One whose rest comes in time keeps it until it ends."""

    async def run() -> None:
        budget, lifecycle, released = Budget(1 << 30), Lifecycle(), list[PendingRequest]()
        arrivals, late, complete = Pending(budget, lifecycle), arrival(1), arrival(TURN)
        for each in (late, complete):
            loop = asyncio.get_running_loop()
            each.connection = cast(
                Connection, SimpleNamespace(loop=loop, release=lambda each=each: released.append(each))
            )
            each.began = time.perf_counter()
            arrivals.begin(each)
            arrivals.put_aside(each)
        arrivals.put(complete)
        until = time.monotonic() + PATIENCE_S
        while not released and time.monotonic() < until:
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(2 * pending.PATIENCE_S)
        assert (released, late.is_done, complete.is_done) == ([late], True, False)
        assert (budget.free, lifecycle.in_flight) == (budget.limit - complete.received, 1)
        arrivals.end(complete)
        assert (budget.free, lifecycle.in_flight) == (budget.limit, 0)

    asyncio.run(run())
