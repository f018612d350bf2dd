"""The fast path next to the general path: loops of good requests, and hostile ones, in random mixes.

Each request goes to two services, one of which has the fast path. The answers must be equal, byte for byte. Several
connections at once form batches, and use the templates of each other's requests.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tests.fast_path.both import TAKEN, metric
from tests.fast_path.wire import Answer, Wire
from tests.hostile.documents import hostile_json
from tests.hostile.findings import LOST, STATUS, WRONG
from tests.hostile.loops import Loop, any_loop
from tests.hostile.requests import JSON, SAFETENSORS, Request, post
from tests.hostile.stage import Stage
from tests.hostile.target import Target
from tests.hostile.tensors import hostile_safetensors

# The most requests that are sent before their answers are read, and the seconds until an answer must come.
BURST, ANSWER_S = 6, 45.0
# Connections at once, the loops that each sends in turn, the requests of a loop, the loops that come again, and the
# tags of heads, which are more than the fast path keeps.
CONNECTIONS, LOOPS, LOOP, KNOWN, TAGS = 6, 4, 40, 5, 400
# The least part of the requests that the fast path must take: otherwise nothing is compared.
SHARE = 0.05
EDGES = ("-0.0", "1e39", "1e-46", "1e999", "7.038531e-26", "null", "true", '"NaN"', "NaN", "[1.5]", "", " 1.5", "1")
PATHS = ("/v1/ops/log1pexp/vjp", "/v1/ops/square/forward", "/v1/ops/log1pexp/gradients", "/v1/ops/sign/vjp")


def attack(stage: Stage) -> None:
    """Send mixes of requests to both services until the time is over."""
    rng = random.Random(stage.seed)
    with Target("general", EXPRESS="0") as general:
        ports = stage.target.port, general.wait_until_ready().port
        until = time.monotonic() + stage.seconds
        goods = [good.request for good in stage.goods if good.request.body]

        def compare(seed: int) -> None:
            mine = random.Random(seed)
            makers = _makers(mine, goods)
            while time.monotonic() < until and stage.target.is_alive():
                _compare_on_a_connection(stage, ports, mine, makers, until)

        threads = [threading.Thread(target=compare, args=(rng.getrandbits(32),)) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with Wire(stage.target.port, ANSWER_S) as wire:
            if (taken := metric(wire, TAKEN)) < SHARE * stage.findings.requests:
                stage.findings.fail(LOST, f"the fast path took only {taken} of {stage.findings.requests} requests")
        stage.target.find_crashes(stage.findings)
        stage.target.find_log_tracebacks(stage.findings)


def _makers(rng: random.Random, goods: Sequence[Request]) -> list[Callable[[], bytes]]:
    """Return functions that make requests: loops come most often, because they get templates."""

    loops = [_endless(rng) for _ in range(LOOPS)]

    def loop() -> bytes:
        return next(rng.choice(loops))

    def edge() -> bytes:
        request = _loop(rng, rng.choice(PATHS))
        number = str(request.document["inputs"]["x"][0]).encode()
        return request.with_body(request.body.replace(number, rng.choice(EDGES).encode(), 1)).encode()

    def hostile() -> bytes:
        request = _loop(rng, rng.choice(PATHS))
        return request.with_body(hostile_json(rng, request.document)).encode(f"x-other: {rng.randrange(3)}")

    def good() -> bytes:
        request = rng.choice(goods)
        if dict(request.headers).get("content-type") == SAFETENSORS and rng.random() < 0.5:
            request = request.with_body(hostile_safetensors(rng, request.body))
        return request.encode()

    few = [edge, hostile, good] if goods else [edge, hostile]
    return [loop] * LOOPS * 4 + few


def _endless(rng: random.Random) -> Iterator[bytes]:
    """Yield the requests of one loop after the other; most loops come again, when they may have templates."""
    known = list[Loop]()
    while True:
        if len(known) < KNOWN or rng.random() < 0.2:
            tag = f"x-tag: {rng.randrange(TAGS)}" if rng.random() < 0.5 else ""
            known = [any_loop(rng, tag), *known[: KNOWN - 1]]
        yield from rng.choice(known).requests(rng, LOOP)


def _loop(rng: random.Random, path: str) -> Request:
    """Return one request of a loop, with other numbers each time."""
    size = rng.choice((1, 3, 3, 3, 50))
    numbers = [rng.choice((rng.uniform(-3, 3), rng.uniform(-1e3, 1e3))) for _ in range(size)]
    return post(path, {"inputs": {"x": numbers}, "dtype": rng.choice(("float32", "float64"))}, content_type=JSON)


def _compare_on_a_connection(
    stage: Stage, ports: tuple[int, int], rng: random.Random, makers: Sequence[Callable[[], bytes]], until: float
) -> None:
    with Wire(ports[0], ANSWER_S) as fast, Wire(ports[1], ANSWER_S) as general:
        while time.monotonic() < until:
            requests = [rng.choice(makers)() for _ in range(rng.choice((1, 1, 1, BURST)))]
            stage.findings.sent(len(requests))
            data = b"".join(requests)
            cuts = sorted(rng.randrange(len(data)) for _ in range(rng.choice((0, 0, 1, 2))))
            pieces = [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
            try:
                found: list[list[Answer]] = []
                for wire in (fast, general):
                    wire.send(*pieces)
                    found.append(wire.answers(len(requests)))
            except OSError as error:
                stage.findings.fail(LOST, f"no answer: {error!r}", requests)
                return
            for one, other, request in zip(*found, requests, strict=False):
                stage.findings.answered(one.status)
                if one == other:
                    stage.findings.matched()
                else:
                    kind = WRONG if one.status == other.status else STATUS
                    stage.findings.fail(kind, f"expected {json.dumps(repr(other[:]))}, got {one!r}", [request])
            if len(found[0]) != len(found[1]):
                stage.findings.fail(LOST, f"expected {len(found[1])} answers, got {len(found[0])}", requests)
            if found[1][-1].is_last or found[0][-1].is_last:
                return
