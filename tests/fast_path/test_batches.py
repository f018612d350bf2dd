"""Many connections at once: every answer is that of the general path, and belongs to its connection."""

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.fast_path.both import GET, PATIENCE, Both
from tests.fast_path.wire import Answer, Wire, post, with_head
from tests.http.openinference_client import LENGTH, OCTETS, binary, in_json

CONNECTIONS, ROUNDS = 32, 25
# The float32 that orjson does not write exactly.
AMBIGUOUS = "7.038531e-26"
Loop = Callable[[float], bytes]


def lists(op: str, operation: str, size: int, **fields: object) -> Loop:
    def request(number: float) -> bytes:
        x = [number + each + 0.25 for each in range(size)]
        tree: dict[str, object] = {"inputs": {"x": x}}
        if operation == "vjp":
            tree["cotangents"] = {"y": [number * 2 - each + 0.5 for each in range(size)]}
        return post(f"/v1/ops/{op}/{operation}", json.dumps(tree | fields).encode())

    return request


def paired(number: float) -> bytes:
    tree = {"inputs": {"x": [number + 0.25], "z": [0.5 - number]}, "attrs": {"a": 0.5}}
    return post("/v1/ops/paired/forward", json.dumps(tree).encode())


def inference(number: float) -> bytes:
    body, headers = binary({"x": np.array([number + 0.25, -number], np.float32)})
    lines = (f"content-type: {OCTETS}", f"{LENGTH}: {headers[LENGTH]}")
    return with_head("/v2/models/log1pexp/infer", lines, body)


def inference_in_json(number: float) -> bytes:
    body = {"inputs": in_json({"x": np.array([number + 0.25, -number - 0.5], np.float32)})}
    return post("/v2/models/log1pexp/infer", json.dumps(body).encode())


def umbridge(number: float) -> bytes:
    body = {"name": "log1pexp", "input": [[number + 0.25, 1.5]], "config": {"shape": {"x": [2]}}}
    return post("/Evaluate", json.dumps(body).encode())


LOOPS: tuple[Loop, ...] = (
    lists("log1pexp", "vjp", 3),
    lists("log1pexp", "vjp", 4),
    lists("log1pexp", "vjp", 3, outputs=True),
    lists("log1pexp", "vjp", 3, dtype="float64"),
    lists("log1pexp", "vjp", 3, encoding="base64"),
    lists("log1pexp", "forward", 3),
    lists("square", "forward", 3),
    lists("square", "forward", 700),
    paired,
    inference,
    inference_in_json,
    umbridge,
)
# Their failures are those of another prefix, which rests after some.
OTHER = ("content-type: application/json", "x-other: 1")
OTHERS = (
    GET % b"/health/live",
    post("/v1/ops/log1pexp/vjp", b'{"inputs":{"x":[1e39]}}', *OTHER),
    post("/v1/ops/log1pexp/vjp", b"{", *OTHER),
    post("/v1/ops/log1pexp/jacobian", b'{"inputs":{"x":[1.5]}}', *OTHER),
    post("/v1/ops/square/forward", b'{"inputs":{"x":[1e38,2.5,3.5]}}', *OTHER),
    post("/v1/ops/square/forward", b'{"inputs":{"x":[%b,2.5,3.5]}}' % AMBIGUOUS.encode(), *OTHER),
)


@pytest.fixture
def warmed(both) -> Both:
    for loop in LOOPS:
        both.warm(loop)
    return both


def in_turns(port: int, turns: Sequence[Sequence[bytes]]) -> list[list[Answer]]:
    """Send each turn's requests at once, one on each connection; return the answers, turn by turn."""
    wires = [Wire(port) for _ in turns[0]]
    try:
        found: list[list[Answer]] = []
        for turn in turns:
            for wire, request in zip(wires, turn, strict=True):
                wire.send(request)
            found.append([wire.answer() for wire in wires])
        return found
    finally:
        for wire in wires:
            wire.socket.close()


@pytest.mark.slow
def test_many_connections(warmed):
    """Every request differs from all others, so each answer shows whose it is."""
    rng, numbers = random.Random(4), itertools.count()
    turns = [
        [rng.choice(LOOPS)(next(numbers) / 8) if rng.random() < 0.9 else rng.choice(OTHERS) for _ in range(CONNECTIONS)]
        for _ in range(ROUNDS)
    ]
    with warmed.takes(CONNECTIONS * ROUNDS // 4):
        fast = in_turns(warmed.services[0].port, turns)
    alone = warmed.same(*itertools.chain.from_iterable(turns))
    assert list(itertools.chain.from_iterable(fast)) == alone


@pytest.mark.slow
def test_many_connections_of_one_loop(warmed):
    """More numbers than the shortest length of a call has, and than a shared call may have; bodies in several parts."""
    for size in (1, 700, 9000):
        loop = lists("square", "forward", size)
        warmed.warm(loop)
        turns = [[loop(turn * 100 + each + 0.125) for each in range(CONNECTIONS)] for turn in range(6)]
        fast = in_turns(warmed.services[0].port, turns)
        alone = warmed.same(*itertools.chain.from_iterable(turns))
        assert list(itertools.chain.from_iterable(fast)) == alone


@pytest.mark.slow
def test_a_loop_whose_requests_always_share_a_batch(both):
    """No request runs alone, so a trial must show how long one takes."""
    loop, before = lists("log1pexp", "gradients", 700, dtype="float64"), both.taken()
    for turn in range(PATIENCE):
        requests = [loop(turn * CONNECTIONS + each + 0.125) for each in range(CONNECTIONS)]
        [fast] = in_turns(both.services[0].port, [requests])
        if both.taken() > before:
            break
    else:
        pytest.fail("the fast path does not take this request")
    assert fast == both.same(*requests)


@pytest.mark.parametrize("size", [400, 1500])
def test_the_requests_of_a_turn_share_calls(both, size):
    """The first run of a length compiles, so it is not brief. The numbers of a turn fill one call or more."""
    loop = lists("square", "gradients", size, dtype="float64")
    both.warm(loop)
    for turn in range(PATIENCE):
        taken, batches = both.taken(), both.batches("square", "gradients")
        in_turns(both.services[0].port, [[loop(turn * CONNECTIONS + each + 0.125) for each in range(CONNECTIONS)]])
        taken, batches = both.taken() - taken, both.batches("square", "gradients") - batches
        if taken == CONNECTIONS and batches <= CONNECTIONS // 2:
            return
    pytest.fail(f"the last turn took {batches} calls, and {taken} requests took the fast path")


def test_long_rows_that_json_writes_otherwise(warmed):
    """A row that holds a number that needs another writer, among rows that do not."""
    for size, numbers in itertools.product((64, 65, 700), ("1e30", "-1e30", AMBIGUOUS, f"-{AMBIGUOUS}")):
        warmed.warm(lists("square", "vjp", size))
        plain, edge = ["0.5"] * size, ["0.5"] * (size - 1) + [numbers]
        turn = [
            post("/v1/ops/square/vjp", b'{"inputs": {"x": [%b]}, "cotangents": {"y": [%b]}}' % (x, dy))
            for x, dy in itertools.product([", ".join(row).encode() for row in (plain, edge)], repeat=2)
        ]
        [fast] = in_turns(warmed.services[0].port, [turn])
        assert fast == warmed.same(*turn)


def test_threads_of_clients(warmed):
    """Clients that do not wait for each other, each with its own loop of requests."""
    failed: list[object] = []

    def client(seed: int) -> None:
        rng = random.Random(seed)
        requests = [rng.choice(LOOPS)(seed * 1000 + each + 0.5) for each in range(40)]
        requests += rng.choices(OTHERS, k=8)
        rng.shuffle(requests)
        found: list[list[Answer]] = []
        for service in warmed.services:
            with Wire(service.port) as wire:
                answers: list[Answer] = []
                for request in requests:
                    wire.send(request)
                    answers.append(wire.answer())
                found.append(answers)
        if found[0] != found[1]:
            failed.append(seed)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.slow
def test_requests_that_cannot_share_a_call_stay_off_the_event_loop(two_services):
    """An op that sleeps never gets a template: the service answers others meanwhile."""
    service, stop, slowest = two_services[0], threading.Event(), [0.0]

    def probe() -> None:
        with Wire(service.port) as wire:
            while not stop.is_set():
                began = time.monotonic()
                wire.send(GET % b"/health/live")
                wire.answer()
                slowest[0] = max(slowest[0], time.monotonic() - began)

    thread = threading.Thread(target=probe)
    with Wire(service.port) as wire:
        for number in range(3):
            wire.send(post("/v1/ops/dawdling/forward", b'{"inputs":{"x":[%d.5,1.5]}}' % number))
            wire.answer()
        thread.start()
        began = time.monotonic()
        for number in range(6):
            wire.send(post("/v1/ops/dawdling/forward", b'{"inputs":{"x":[%d.5,1.5]}}' % number))
            assert wire.answer().status == 200
        took = time.monotonic() - began
        stop.set()
        thread.join()
    assert slowest[0] < took / 8, (slowest, took)
