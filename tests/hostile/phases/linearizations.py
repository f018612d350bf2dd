"""Linearizations: more than fit, used while they go, with foreign ids, damaged bodies and wrong shapes."""

import json
import random

from tests.hostile.attack import whole
from tests.hostile.documents import hostile_json
from tests.hostile.requests import Request, post
from tests.hostile.stage import Stage
from tests.hostile.strike import in_threads, strike
from tests.hostile.wire import Wire
from tests.hostile.witness import watch

THREADS, MOST, TIMEOUT_S = 6, 10_000, 20.0
SIZES = (2, 20, 100)
PATH = "/v1/linearizations"
STRANGE = ("0" * 8 + "-" + "0" * 32, "..%2f..%2fetc", "%00", "a" * 5000, "-", "{id}")


def attack(stage: Stage) -> None:
    """Keep forward passes and use them until the time is over."""

    def one(number: int) -> None:
        case = f"{stage.seed} {number}"
        rng = random.Random(case)
        strike(stage.target.port, whole("a linearization", _first(rng)), stage.findings, f"case '{case}':")
        name = _name(stage, rng)
        for _ in range(3):
            used = name if rng.random() < 0.8 else rng.choice(STRANGE)
            strike(stage.target.port, whole("a use", _use(rng, used)), stage.findings, f"case '{case}':")

    with watch(stage.target, stage.goods, stage.findings, stage.seed):
        in_threads(THREADS, stage.seconds, one, MOST)


def _matrix(rng: random.Random, size: int) -> list[list[float]]:
    return [[rng.uniform(-1, 1) for _ in range(size)] for _ in range(size)]


def _first(rng: random.Random) -> Request:
    """Return a request that keeps a forward pass, mostly damaged."""
    request = post("/v1/ops/self_adjoint_eig/linearize", {"inputs": {"a": _matrix(rng, 2)}, "wrt": ["a"]})
    return request.with_body(hostile_json(rng, request.document)) if rng.random() < 0.7 else request


def _name(stage: Stage, rng: random.Random) -> str:
    """Return the id of a new linearization, one that nobody has if the service keeps none."""
    with Wire(stage.target.port, TIMEOUT_S) as wire:
        size = rng.choice(SIZES)
        wire.send([post("/v1/ops/self_adjoint_eig/linearize", {"inputs": {"a": _matrix(rng, size)}}).encode()])
        answer = wire.answer("POST")
    kept = json.loads(answer.body)["linearization"] if answer.status == 200 else None
    return kept["id"] if kept else STRANGE[0]


def _use(rng: random.Random, name: str) -> Request:
    """Return a request for a linearization, with directions that do not fit it, a time, or its end."""
    choice = rng.random()
    if choice < 0.2:
        return Request(rng.choice(["GET", "HEAD", "DELETE", "PUT"]), f"{PATH}/{name}")
    if choice < 0.4:
        document = {"expires_s": rng.choice([0, -1, 1e-3, 60, 1e300, "NaN", None, [1]])}
        request = post(f"{PATH}/{name}", document)
        return Request("PATCH", request.path, request.headers, request.body)
    size = rng.choice(SIZES)
    product, document = rng.choice(
        [
            ("vjp", {"cotangents": {"w": [1.0] * size}}),
            ("vjp", {"cotangents": {"v": [_matrix(rng, 2)] * 5}, "batched": True}),
            ("jvp", {"tangents": {"a": _matrix(rng, size)}}),
            ("hvp", {"vectors": {"a": _matrix(rng, size)}}),
            ("hvp", {}),
        ]
    )
    request = post(f"{PATH}/{name}/{product}", document, pullback_deadline_ms="2000")
    return request.with_body(hostile_json(rng, document)) if rng.random() < 0.4 else request
