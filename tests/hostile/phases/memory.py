"""Long names: what a client makes up must not be kept after its answer."""

import json
import random
from collections.abc import Callable
from typing import Any

from tests.hostile.attack import whole
from tests.hostile.requests import JSON, SAFETENSORS, Request
from tests.hostile.stage import Stage
from tests.hostile.strike import in_threads, strike
from tests.hostile.witness import watch

THREADS, MOST, WARM = 2, 100, 2
# Headers of HTTP may have 64 KiB.
SIZE, HTTP_HEAD = 24 << 20, 60_000
NAME, TYPED = "@name@", (("content-type", JSON),)
X, SQUARE = {"x": [1.0]}, "/v1/ops/square/"
TENSOR = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
INFER, TESSERACT = "/v2/models/square/infer", "/tesseract/square/"

# Where a name can stand in a document.
DOCUMENTS: tuple[tuple[str, Any], ...] = (
    (SQUARE + "vjp", {"inputs": X | {NAME: [1.0]}}),
    (SQUARE + "forward", {"inputs": {NAME: [1.0]}}),
    (SQUARE + "vjp", {"inputs": X, "wrt": [NAME]}),
    (SQUARE + "vjp", {"inputs": X, "attrs": {NAME: 1}}),
    (SQUARE + "vjp", {"inputs": X, "dtype": NAME}),
    (SQUARE + "vjp", {"inputs": X, "device": NAME}),
    (SQUARE + "jvp", {"inputs": X, "tangents": {NAME: [1.0]}}),
    ("/v1/ops/scale_gradient/vjp", {"inputs": X, "attrs": {"scale": NAME}}),
    ("/Evaluate", {"name": NAME, "input": [[1.0]]}),
    ("/Evaluate", {"name": "square", "input": [[1.0]], "config": {"shape": {NAME: [1]}}}),
    (TESSERACT + "apply", {"inputs": {NAME: [1.0]}}),
    (TESSERACT + "jacobian", {"inputs": X, "jac_inputs": [NAME], "jac_outputs": ["y"]}),
    (INFER, {"inputs": [TENSOR | {"name": NAME}]}),
    (INFER, {"inputs": [TENSOR], "id": NAME}),
    (INFER, {"inputs": [TENSOR], "parameters": {NAME: 1}}),
    (INFER, {"inputs": [TENSOR], "outputs": [{"name": NAME}]}),
)


HEADS: tuple[Callable[[str], Request], ...] = (
    lambda name: Request("POST", f"/v1/ops/{name}/vjp", TYPED, b"{}"),
    lambda name: Request("POST", f"/v1/ops/square.{name}/vjp", TYPED, b"{}"),
    lambda name: Request("GET", f"/v1/ops?{name}"),
    lambda name: Request("POST", SQUARE + "vjp", (*TYPED, ("accept", f"a/{name}")), b"{}"),
    lambda name: Request("POST", SQUARE + "vjp", (("content-type", f"a/{name}"),), b"{}"),
    lambda name: Request("GET", f"/v2/models/{name}"),
)


def attack(stage: Stage) -> None:
    """Send requests with long and different names, several times as much as may stay in memory."""

    def one(number: int) -> None:
        request = long_name(f"{stage.seed} {number}", number)
        strike(stage.target.port, whole(request.path[:40], request), stage.findings, f"long name {number}:")

    # Buffers that the allocator keeps for bodies of this size are no growth.
    for number in range(WARM):
        one(-1 - number)
    with watch(stage.target, stage.goods, stage.findings, stage.seed):
        in_threads(THREADS, stage.seconds, one, MOST)


def long_name(seed: str, number: int) -> Request:
    """Return a request with a name that ``seed`` determines, at place ``number`` of those where one can stand."""
    start = f"{random.Random(seed).getrandbits(64):x}"
    name = (start * (SIZE // len(start) + 1))[:SIZE]
    # Every fourth name is in a head or a header; the others are longer.
    if number % 4 == 0:
        return [*HEADS, _in_safetensors][number // 4 % (len(HEADS) + 1)](name[:HTTP_HEAD])
    path, document = DOCUMENTS[(number - number // 4) % len(DOCUMENTS)]
    return Request("POST", path, TYPED, json.dumps(document).replace(NAME, name).encode())


def _in_safetensors(name: str) -> Request:
    header = json.dumps({f"inputs/{name}": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    body = len(header).to_bytes(8, "little") + header + bytes(4)
    return Request("POST", SQUARE + "vjp", (("content-type", SAFETENSORS),), body)
