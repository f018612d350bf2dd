"""Graphs of ops: documents that are damaged, that grow without bounds, and more of them than are kept."""

import json
import random
from typing import Any

from tests.hostile.attack import Attack, whole
from tests.hostile.documents import hostile_json
from tests.hostile.requests import Request, post
from tests.hostile.stage import Stage
from tests.hostile.strike import in_threads, strike
from tests.hostile.wire import Wire
from tests.hostile.witness import watch

THREADS, MOST, TIMEOUT_S = 6, 100_000, 20.0
PATH = "/v1/graphs"
UNARY = ("log1pexp", "square", "sign", "round_ste", "safe_norm", "sum", "mean", "flatten", "transpose", "clip_gradient")
BINARY = ("add", "subtract", "multiply", "divide", "matmul", "matvec", "concat", "square.vjp", "log1pexp.vjp")
NODES = (1, 2, 5, 20, 300)
VALUES = (1.5, [1.0, -2.0], [[1.0, 2.0], [3.0, 4.0]], [], [[]], "NaN", [["Infinity"]])


def attack(stage: Stage) -> None:
    """Post graphs and use them until the time is over."""

    def one(number: int) -> None:
        case = f"{stage.seed} {number}"
        rng = random.Random(case)
        document = drawn(rng)
        strike(stage.target.port, _posted(rng, document), stage.findings, f"case '{case}':")
        name = _name(stage, document)
        if name:
            strike(stage.target.port, whole("a use", _use(rng, name)), stage.findings, f"case '{case}':")

    with watch(stage.target, stage.goods, stage.findings, stage.seed):
        in_threads(THREADS, stage.seconds, one, MOST)


def drawn(rng: random.Random) -> dict[str, Any]:
    """Return a document whose names are right, and whose shapes and dtypes may not be."""
    names, nodes = ["x", "z"], list[dict[str, Any]]()
    for i in range(rng.choice(NODES)):
        is_binary = rng.random() < 0.5
        op = rng.choice(BINARY if is_binary else UNARY)
        sources: list[Any] = [rng.choice(names[-3:]) for _ in range(1 + is_binary)]
        if is_binary and rng.random() < 0.3:
            sources[1] = {"constant": rng.choice([*VALUES, rng.random()])}
        nodes.append({"name": f"n{i}", "op": op, "inputs": sources})
        names.append(f"n{i}")
    used = {source for node in nodes for source in node["inputs"] if isinstance(source, str)}
    outputs = {f"y{i}": name for i, name in enumerate(name for name in names[2:] if name not in used)}
    inputs = [name for name in names[:2] if name in used]
    return {"inputs": inputs, "nodes": nodes, "outputs": dict(list(outputs.items())[:32])}


def _posted(rng: random.Random, document: dict[str, Any]) -> Attack:
    """Return the attack that posts a document, mostly damaged, sometimes under a name."""
    request = post(PATH, document)
    if rng.random() < 0.6:
        request = request.with_body(hostile_json(rng, document))
    if rng.random() < 0.1:
        name = rng.choice(["graph." + "0" * 32, "graph.x", "..%2f..%2fetc", "graph." + "a" * 5000])
        request = Request(rng.choice(["PUT", "GET", "DELETE"]), f"{PATH}/{name}", request.headers, request.body)
    return whole("a graph", request)


def _name(stage: Stage, document: dict[str, Any]) -> str:
    """Return the name of the graph of a document, "" if it is refused."""
    with Wire(stage.target.port, TIMEOUT_S) as wire:
        wire.send([post(PATH, document).encode()])
        answer = wire.answer("POST")
    return str(json.loads(answer.body)["name"]) if answer.status in (200, 201) else ""


def _use(rng: random.Random, name: str) -> Request:
    """Return a request for a graph, with values that it may not accept."""
    operation = rng.choice(["forward", "vjp", "gradients", "hvp", "jacobian", "verify"])
    value = rng.choice(VALUES)
    fields: dict[str, Any] = {"inputs": dict.fromkeys(("x", "z"), value)}
    if operation == "hvp":
        fields["vectors"] = {"x": value}
    if rng.random() < 0.5:
        del fields["inputs"]["z"]
    derived = rng.choice(["", "", ".vjp", ".jvp.vjp"])
    return post(f"/v1/ops/{name}{derived}/{operation}", fields, pullback_deadline_ms="2000")
