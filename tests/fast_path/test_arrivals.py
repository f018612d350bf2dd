"""Requests that wait: small ones never wait for several large ones, none waits for ever, and a turn is bounded."""

import random
from typing import Any, cast

from app.fast_path.arrivals import EACH, SMALL, TURN, Arrival, Arrivals
from app.fast_path.prefixes import RequestPrefix
from app.http.connection import Connection


def arrival(size: int) -> Arrival:
    connection = cast(Connection, cast(Any, object()))
    return Arrival(connection, b"", b"x" * size, b"", RequestPrefix("/x", b""), 0.0)


def test_every_request_gets_a_turn_in_order():
    rng = random.Random(1)
    arrivals, put, taken = Arrivals(), list[Arrival](), list[Arrival]()
    for _ in range(300):
        for _ in range(rng.randrange(4)):
            put.append(arrival(rng.choice([10, SMALL, SMALL + 1, TURN, rng.randrange(2 * TURN)])))
            arrivals.put(put[-1])
        taken += arrivals.turn()
    while arrivals:
        taken += arrivals.turn()
    assert len(taken) == len(put) == len(set(map(id, taken)))
    for is_small in (True, False):
        assert [each for each in taken if (len(each.body) <= SMALL) == is_small] == [
            each for each in put if (len(each.body) <= SMALL) == is_small
        ]


def test_a_turn_is_bounded():
    arrivals = Arrivals()
    for size in (TURN, 100, TURN, SMALL, TURN, *[SMALL] * 100):
        arrivals.put(arrival(size))
    first = [len(each.body) for each in arrivals.turn()]
    assert sum(size for size in first if size <= SMALL) < TURN + SMALL
    assert [size for size in first if size > SMALL] == [TURN]


def test_a_turn_has_a_bounded_number_of_requests():
    arrivals = Arrivals()
    for _ in range(4_000):
        arrivals.put(arrival(50))
    while arrivals:
        assert len([*arrivals.turn()]) <= TURN // EACH


def test_small_requests_come_before_large_ones_that_wait():
    arrivals = Arrivals()
    for _ in range(50):
        arrivals.put(arrival(TURN))
    small = arrival(100)
    arrivals.put(small)
    assert small in [*arrivals.turn()][:1]


def test_a_request_that_is_popped_gets_no_turn():
    arrivals, one, other = Arrivals(), arrival(1), arrival(TURN)
    for each in (one, other):
        arrivals.put(each)
        assert arrivals.pop(each.connection) is each
        assert arrivals.pop(each.connection) is None
    assert not arrivals
    assert [*arrivals.turn()] == []
