"""Requests of many kinds: ops, operations, dtypes, shapes and formats, with random numbers."""

import json
import random
from typing import Any

import numpy as np

from app.tensors import safetensors
from tests.fast_path.wire import post, with_head

OPS = ("square", "log1pexp", "safe_norm", "sign", "relu", "scale_gradient")
OPERATIONS = {"forward": "", "vjp": "cotangents", "jvp": "tangents", "hvp": "vectors", "gradients": ""}
NAMES = {"vjp": "y"}
SIZES = (1, 3, 50, 700)
IN_JSON = "content-type: application/json"
SAFETENSORS = "application/vnd.safetensors"
LARGE = 6000


def requests(seed: int = 0) -> list[bytes]:
    """Return requests in an order that mixes their kinds; none is larger than a buffer of the balancer."""
    rng = random.Random(seed)
    found = [_json(rng, op, operation, size) for op in OPS for operation in OPERATIONS for size in SIZES]
    found += [_json(rng, op, "vjp", LARGE) for op in ("square", "log1pexp")]
    found += [_binary(rng, op, size) for op in OPS[:3] for size in SIZES]
    rng.shuffle(found)
    return found


def _json(rng: random.Random, op: str, operation: str, size: int) -> bytes:
    def vector() -> list[float]:
        return [round(rng.uniform(-3, 3), 6) for _ in range(size)]

    body: dict[str, Any] = {"inputs": {"x": vector()}, "dtype": rng.choice(("float32", "float64"))}
    if field := OPERATIONS[operation]:
        # The norm of a vector is a number.
        direction = vector()
        body[field] = {
            NAMES.get(operation, "x"): direction[0] if (op, field) == ("safe_norm", "cotangents") else direction
        }
    return post(f"/v1/ops/{op}/{operation}", json.dumps(body).encode(), IN_JSON)


def _binary(rng: random.Random, op: str, size: int) -> bytes:
    x = np.array([rng.uniform(-3, 3) for _ in range(size)], np.float32)
    body = b"".join(bytes(part) for part in safetensors.lay_out({"inputs/x": x}, {}).pieces())
    return with_head(f"/v1/ops/{op}/vjp", (f"content-type: {SAFETENSORS}", f"accept: {SAFETENSORS}"), body)
