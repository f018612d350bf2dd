"""Clients that leave: before, in and after a request, with and without a reset. Nobody else may notice."""

import contextlib
import random
import time

from tests.hostile.requests import Request, post
from tests.hostile.stage import Stage
from tests.hostile.strike import in_threads
from tests.hostile.wire import Lost, Wire
from tests.hostile.witness import watch

THREADS, MOST = 6, 100_000
TIMEOUT_S = 20.0
LARGE = post("/v1/ops/square/forward", {"inputs": {"x": [1.2345678] * 50_000}})
STREAM = post("/v1/checks", {"ops": ["square"], "orders": [1], "modes": ["eager"], "checks": ["value"]})


def attack(stage: Stage) -> None:
    """Leave at every moment of a request until the time is over."""

    def one(number: int) -> None:
        rng = random.Random(f"{stage.seed} {number}")
        stage.findings.sent()
        with contextlib.suppress(OSError, Lost), Wire(stage.target.port, TIMEOUT_S) as wire:
            _leave(rng, wire, rng.choice(stage.goods).request)

    with watch(stage.target, stage.goods, stage.findings, stage.seed):
        in_threads(THREADS, stage.seconds, one, MOST)


def _leave(rng: random.Random, wire: Wire, request: Request) -> None:
    choice = rng.random()
    if choice < 0.02:
        request = STREAM
    elif choice < 0.15:
        request = LARGE
    data = request.encode()
    match rng.randrange(6):
        case 0:
            data = data[: rng.randrange(len(data))]
        case 1:
            data = data * 3
        case _:
            pass
    wire.send([data])
    time.sleep(rng.choice([0.0, 0.0, 0.001, 0.003, 0.01]))
    match rng.randrange(4):
        case 0:
            wire.reset()
        case 1:
            wire.socket.shutdown(1)
            wire.answer(request.method, 1.0)
        case 2:
            wire.socket.recv(rng.choice([1, 100, 10_000]))
            wire.reset()
        case _:
            wire.close()
