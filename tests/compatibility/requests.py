"""The requests whose answers the version in the making promises: every route, dialect, operation and kind of error."""

import base64
import json
import struct
from typing import Any

from tests.compatibility.replaying import Entry

SAFETENSORS = "application/vnd.safetensors"
GRAPH = {
    "inputs": [{"name": "x", "shape": ["N"]}],
    "nodes": [{"name": "double", "op": "add", "inputs": {"a": "x", "b": "x"}}],
    "outputs": {"y": "double"},
}


def get(path: str, **more: Any) -> Entry:
    """Return a GET. ``depth`` compares the first levels, ``values=False`` only fields and types.

    A request that ``is_slow`` starts a process of checks or jobs.
    """
    return {"method": "GET", "path": path, **more}


def post(path: str, body: Any, **more: Any) -> Entry:
    return {"method": "POST", "path": path, "body": body, **more}


def op(path: str, inputs: Any, /, values: bool = True, **fields: Any) -> Entry:
    more = {} if values else {"values": False}
    return post(f"/v1/ops/{path}", {"inputs": inputs, **fields}, **more)


def _safetensors(fields: dict[str, Any], x: list[float]) -> str:
    header = {
        "__metadata__": {"pullback": json.dumps(fields)},
        "inputs/x": {"dtype": "F64", "shape": [len(x)], "data_offsets": [0, 8 * len(x)]},
    }
    text = json.dumps(header).encode()
    return base64.b64encode(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(x)}d", *x)).decode()


X = {"x": [1, 3]}
LOGITS = {"logits": [[0, 0]], "labels": [1]}
FLOATS = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 3]}
ARRAY = {"object_type": "array", "shape": [2], "dtype": "float32", "data": {"buffer": [1, 3], "encoding": "json"}}

REQUESTS: list[Entry] = [
    get("/", headers={"accept": "application/json"}),
    get("/v1/ops"),
    get("/v1/ops/softmax_cross_entropy"),
    get("/v1/ops/square.vjp", depth=1),
    get("/v1/ops/square/source"),
    get("/openapi.json", depth=3, values=False),
    get("/health/live"),
    get("/health/ready", depth=1, values=False),
    get("/metrics"),
    # Operations, with the fields that a request may have.
    op("square/forward", {"x": [[1, 2], [3, 4]]}, encoding="flat", mode="v1", device="cpu"),
    op("square/forward", {"x": {"dtype": "float64", "shape": [2], "data": [1, 3]}}, dtype="float64", encoding="base64"),
    op("square/gradients", X, order=3, mode="eager"),
    op("softmax_cross_entropy/gradients", LOGITS, wrt=["logits"], cotangents={"loss": [2]}),
    op("square/vjp", X, cotangents={"y": [[1, 0], [0, 1]]}, batched=True, outputs=True),
    op("square/vjp", X, digits=True, values=False),
    op("square/jvp", X, tangents={"x": [1, 10]}),
    op("softmax_cross_entropy/jacobian", LOGITS, of=["loss"], wrt=["logits"]),
    op("square/jacobian", X, sparse="csr"),
    op("square/sparsity", X, order=2),
    op("square/hvp", X, vectors={"x": [1, 1]}, mode="xla"),
    op("log1pexp2/hessian", {"x": [1, 100]}, diagonal=True),
    op("square/vjp", {"x": [[1, 3], [2, 4]]}, points=True),
    op(
        "softmax_cross_entropy/forward",
        {"logits": [[[0, 0]], [[0, 0]]], "labels": [[1], [7]]},
        points=True,
        partial=True,
    ),
    op("clip_gradient/vjp", X, attrs={"by": "norm", "limit": 2}, cotangents={"y": [5, 1]}),
    op("self_adjoint_eig/forward", {"a": [[3, 0], [0, 5]]}),
    op("square.vjp.jvp/forward", {"x": [1, 3], "dy": [1, 10], "tx": [1, 1], "tdy": [0, 1]}),
    # Whether a forward pass is kept depends on how long it takes.
    {**op("square/linearize", X), "depth": 0},
    op("sign/numeric", {"x": [2, 0]}, values=False),
    {**op("square/check", X, checks=["contract"], dtypes=["float64"], modes=["graph"], values=False), "is_slow": True},
    op("square/verify", X, gradients={"x": [2, 6]}, values=False),
    post(
        "/v1/checks",
        {"ops": ["square"], "checks": ["contract"], "dtypes": ["float64"], "modes": ["graph"]},
        values=False,
        is_slow=True,
    ),
    {
        **post("/v1/ops/square/vjp", _safetensors({"dtype": "float64"}, [1.0, 3.0])),
        "headers": {"content-type": SAFETENSORS, "accept": SAFETENSORS},
    },
    # Graphs and jobs.
    post("/v1/graphs", GRAPH, depth=1),
    get("/v1/graphs/{id}"),
    post("/v1/ops/{id}/vjp", {"inputs": X}),
    post("/v1/ops/{id}/forward", {"inputs": X}, headers={"require-verdict": "pass"}),
    get("/v1/ops/{id}/verdict"),
    post("/v1/ops/square/forward", {"inputs": X}, headers={"prefer": "respond-async"}, is_slow=True),
    get("/v1/jobs/{id}?wait=100", is_slow=True),
    get("/v1/jobs/{id}/result", is_slow=True),
    {"method": "DELETE", "path": "/v1/jobs/{id}", "is_slow": True},
    # Errors.
    op("square/forward", {"x": [1, "one"]}),
    op("square/forward", X, colour="red"),
    op("square/forward", {}),
    op("no_such_op/forward", X),
    op("square/no_such_operation", X),
    get("/v1/ops/square/forward"),
    post("/v1/ops/square/forward", {"inputs": X}, headers={"content-type": "text/plain"}),
    post("/v1/ops/square/forward", {"inputs": X}, headers={"accept": "image/png"}),
    post("/v1/ops/square/forward", base64.b64encode(b'{"inputs": {"x": [NaN]}}').decode()),
    op("round_ste/forward", X, mode="no_such_mode"),
    get("/v1/linearizations/unknown"),
    # UM-Bridge.
    get("/Info"),
    post("/ModelInfo", {"name": "square"}),
    post("/InputSizes", {"name": "square", "config": {"shape": [2]}}),
    post("/Evaluate", {"name": "square", "input": [[1.0, 3.0]], "config": {"shape": [2]}}),
    post(
        "/Gradient",
        {
            "name": "square",
            "outWrt": 0,
            "inWrt": 0,
            "input": [[1.0, 3.0]],
            "sens": [1.0, 1.0],
            "config": {"shape": [2]},
        },
    ),
    post(
        "/ApplyJacobian",
        {"name": "square", "outWrt": 0, "inWrt": 0, "input": [[1.0, 3.0]], "vec": [1.0, 1.0], "config": {"shape": [2]}},
    ),
    post("/Evaluate", {"name": "no_such_op", "input": [[1.0]], "config": {}}),
    # Tesseract.
    get("/tesseract/square/health"),
    post("/tesseract/square/apply", {"inputs": {"x": ARRAY}}),
    post("/tesseract/square/jacobian", {"inputs": {"x": ARRAY}, "jac_inputs": ["x"], "jac_outputs": ["y"]}),
    post("/tesseract/square/apply", {"inputs": {}}),
    # The Open Inference Protocol.
    get("/v2"),
    get("/v2/models/square"),
    get("/v2/models/square/ready"),
    post("/v2/models/square/infer", {"id": "1", "inputs": [FLOATS]}),
    post("/v2/models/square.vjp/infer", {"inputs": [FLOATS, {**FLOATS, "name": "dy"}]}),
    post("/v2/models/no_such_op/infer", {"inputs": [FLOATS]}),
]
