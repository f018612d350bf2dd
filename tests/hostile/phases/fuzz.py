"""The fuzz: HTTP framing, JSON, safetensors and the bodies of all protocols, by a grammar and a seed."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from tests.hostile.attack import Attack, whole
from tests.hostile.documents import hostile_json
from tests.hostile.framing import broken, harmless
from tests.hostile.requests import OCTETS, SAFETENSORS, Request, post
from tests.hostile.stage import Stage
from tests.hostile.strike import in_threads, strike
from tests.hostile.tensors import compressed, hostile_inference, hostile_safetensors
from tests.hostile.witness import Good, watch

THREADS, MOST = 10, 2_000_000
DEADLINES_MS = (1, 2, 5, 20, 100)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
TYPES = (
    "",
    "text/plain",
    "application/json; charset=utf-16",
    SAFETENSORS,
    OCTETS,
    "application/json;" * 50,
    "*/*",
    "json",
)


def attack(stage: Stage) -> None:
    """Fuzz until the time is over."""

    def one(number: int) -> None:
        case = f"{stage.seed} {number}"
        strike(stage.target.port, fuzzed(case, stage.goods), stage.findings, f"case '{case}':")

    with watch(stage.target, stage.goods, stage.findings, stage.seed):
        in_threads(THREADS, stage.seconds, one, MOST)


def fuzzed(case: str, goods: Sequence[Good]) -> Attack:
    """Return the attack of a case: the same one whenever the name of the case and the good requests are the same."""
    rng = random.Random(case)
    choice = rng.random()
    if choice < 0.2:
        return harmless(rng, goods)
    if choice < 0.4:
        return broken(rng, goods)
    if choice < 0.41:
        return whole("a check", _check(rng, goods))
    return whole("a body", hostile_body(rng, rng.choice(goods).request))


def hostile_body(rng: random.Random, request: Request) -> Request:
    """Return a request with a hostile body, or path, and sometimes other headers."""
    kind = dict(request.headers).get("content-type")
    if kind == SAFETENSORS:
        request = request.with_body(hostile_safetensors(rng, request.body))
    elif kind == OCTETS:
        request = hostile_inference(rng, request)
    elif request.document is not None:
        is_compressed = request.path.startswith("/v2/") and rng.random() < 0.1
        body = hostile_json(rng, request.document)
        request = compressed(rng, request) if is_compressed else request.with_body(body)
    else:
        path = rng.choice(
            [request.path + "/x", request.path + "%00", request.path.upper(), request.path + "?a=b", "/v1"]
        )
        request = replace(request, path=path, method=rng.choice(METHODS))
    return _with_other_headers(rng, request)


def _with_other_headers(rng: random.Random, request: Request) -> Request:
    """Return the request, sometimes with a short deadline, another content type or another method."""
    match rng.randrange(20):
        case 0 | 1:
            more = ("pullback-deadline-ms", str(rng.choice(DEADLINES_MS)))
            return replace(request, headers=(*request.headers, more))
        case 2:
            others = tuple(header for header in request.headers if header[0] != "content-type")
            return replace(request, headers=(*others, ("content-type", rng.choice(TYPES))))
        case 3:
            return replace(request, headers=(*request.headers, ("accept", rng.choice(TYPES))))
        case 4:
            return replace(request, method=rng.choice(METHODS))
        case _:
            return request


def _check(rng: random.Random, goods: Sequence[Good]) -> Request:
    """Return a request for a check or a verification, with hostile options and a deadline that bounds its cost."""
    op = rng.choice([good.request.path.split("/")[3] for good in goods if good.request.path.startswith("/v1/ops/")])
    document = {
        "orders": [1],
        "modes": ["eager"],
        "seed": 1,
        "tolerances": {},
        "checks": ["value"],
        "dtypes": ["float32"],
    }
    name = rng.choice(["check", "verify"])
    request = post(f"/v1/ops/{op}/{name}", document, pullback_deadline_ms=str(rng.choice([5, 50, 200])))
    return request.with_body(hostile_json(rng, json.loads(request.body)))
