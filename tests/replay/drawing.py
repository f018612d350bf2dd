"""The requests of a replay: every op, operation, dialect, encoding, dtype and mode, graphs, and damaged variants."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import httpx

from app.tensors.dtypes import DTYPES
from ops import MODES
from tests.hostile import corpus
from tests.hostile.phases.fuzz import hostile_body
from tests.hostile.phases.graphs import drawn
from tests.hostile.requests import Request, post

# How a derived op is made of an op, for its own operations.
DERIVED = (".vjp", ".jvp", ".hvp", ".vjp.vjp", ".jacobian", ".x")
# Headers that change an answer, or how the service finds it.
HEADERS = (
    {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    {"x-request-id": "replay-1"},
    {"pullback-deadline-ms": "600000"},
    {"accept": "*/*", "user-agent": "replay", "cookie": "a=b"},
    {"x-forwarded-for": "10.0.0.1"},
    {"x-unknown": "1"},
    {"accept": "application/vnd.safetensors"},
    {"connection": "close"},
)
# So many graphs are drawn, and most of them fit no inputs.
GRAPHS = 40


def requests_for(client: httpx.Client, count: int, seed: int) -> list[Request]:
    """Return ``count`` requests for a service, the same for a seed as long as its catalogue is the same.

    Fewer than there are without damaged ones are a sample of those.
    """
    rng = random.Random(seed)
    whole = corpus.corpus(client, examples=100)
    first = corpus.corpus(client, examples=1)
    found = [*whole, *_derived(client, first), *_graphs(rng)]
    found += [request for base in first for request in _variants(rng, base)]
    while len(found) < count:
        damaged = hostile_body(rng, rng.choice(found[: len(whole)]))
        if _has_one_answer(damaged):
            found.append(damaged)
    return [found[i] for i in sorted(rng.sample(range(len(found)), count))]


def _has_one_answer(request: Request) -> bool:
    """Return whether the answer to a request does not depend on the time that it takes."""
    return not any(name == "pullback-deadline-ms" and int(value) < 1000 for name, value in request.headers)


def _derived(client: httpx.Client, requests: list[Request]) -> Iterator[Request]:
    """Yield requests for the operations of derived ops, whose directions the corpus does not know."""
    names = {request.path.split("/")[3] for request in requests if request.path.count("/") == 4}
    for name in sorted(names):
        for ending in DERIVED:
            path = f"/v1/ops/{name}{ending}"
            yield Request("GET", path)
            answer = client.get(path)
            for example in answer.json()["examples"][:1] if answer.is_success else ():
                for operation in ("forward", "gradients"):
                    yield post(f"{path}/{operation}", {"inputs": example["inputs"], "attrs": example["attrs"]})


def _graphs(rng: random.Random) -> Iterator[Request]:
    for _ in range(GRAPHS):
        yield post("/v1/graphs", drawn(rng))


def _variants(rng: random.Random, request: Request) -> Iterator[Request]:
    """Yield the variants of a valid request: dtypes, modes, encodings and headers."""
    for headers in rng.sample(HEADERS, 3):
        yield replace(request, headers=(*request.headers, *headers.items()))
    document = request.document
    if not (request.path.startswith("/v1/ops/") and isinstance(document, Mapping) and "inputs" in document):
        return
    fields: list[dict[str, Any]] = [{"dtype": dtype} for dtype in rng.sample([*DTYPES, "complex64"], 4)]
    fields += [{"mode": mode} for mode in MODES]
    fields += [
        {"encoding": "base64"},
        {"encoding": "nested"},
        {"attrs": {}},
        {"attrs": {"nope": 1}},
        {"device": "cpu:0"},
    ]
    for field in fields:
        yield post(request.path, {**document, **field})
