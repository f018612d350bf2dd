"""No request holds up others: for every route, with the largest bodies, answers and graphs, the longest turn of the
event loop, and the longest time for which a thread holds the interpreter's lock."""

import itertools
import json
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from app.graphs.document import MAX_NODES
from app.requests.answering import SMALL_BODY
from ops import ParameterSet
from pullback.safetensors import write
from tests.http.loop_turns import MeasuredService

# The event loop may be held for 5 ms; the CPU time of a busy machine varies.
LIMIT_S = 0.012
# A thread asks for the interpreter's lock after 5 ms, and of several that compute any may get it first.
LOCK_LIMIT_S = 0.04
# In how many services a request must be slow.
SERVICES = 3
# The most characters of a large JSON body, and the numbers of a large binary one.
LARGE, NUMBERS = 3 << 20, 1 << 20
Request = tuple[str, dict[str, Any]]
"""The path of a request, and the arguments of ``httpx``."""
_numbers = itertools.count()
SAFETENSORS = {"content-type": "application/vnd.safetensors"}
# Values of the parameters of an op, 16 MiB, and its page.
WEIGHTS = {"w": np.linspace(0, 1, 1 << 22, dtype=np.float32)}
PAGE = """
import numpy as np
from ops import Example, Input, Op, Output, Parameter


def forward(x, w):
    return x * w[0]


OP = Op(name="large", summary="x w", doc="x w", function=forward, inputs=(Input("x", ("float32",), ("N",)),),
        outputs=(Output("y", ("float32",), ("N",)),), parameters=(Parameter("w", np.ones(1 << 22, np.float32)),),
        source="a test", examples=(Example("one", {"x": [1.0]}),))
"""


def graph(nodes: int = MAX_NODES) -> dict[str, Any]:
    """Return a new document with so many nodes, with constants, attributes and ops that check their values."""
    first = {"name": "a0", "op": "log1pexp", "inputs": {"x": "x"}}
    others = [
        {"name": f"a{i}", "op": "multiply", "inputs": {"a": f"a{i - 1}", "b": {"constant": 0.5}}}
        for i in range(1, nodes)
    ]
    return {
        "doc": str(next(_numbers)),
        "inputs": ["x"],
        "nodes": [first, *others],
        "outputs": {"y": f"a{nodes - 1}"},
    }


def number_lists(count: int = 1) -> list[list[float]]:
    """Return the numbers of one of ``count`` tensors in a small body, and in a large one, as many as fit."""
    return [[1.0625] * ((size - 500) // 8 // count) for size in (SMALL_BODY, LARGE)]


def native(name: str, *fields: str, size: int = 0, **more: Any) -> Iterator[Request]:
    """Yield requests for an operation of the native API on an op, whose directions have these fields."""
    for numbers in [[0.5] * size] if size else number_lists(1 + len(fields)):
        body = {"inputs": {"x": numbers}, **{f: {"x": numbers} for f in fields}, **more}
        yield f"/v1/ops/square/{name}", {"json": body}


def binary(name: str, *fields: str) -> Request:
    tensors = {f"{field}/x": np.ones(NUMBERS) for field in ("inputs", *fields)}
    body = b"".join(map(bytes, write(tensors, json.dumps({"dtype": "float64"}))))
    headers = {**SAFETENSORS, "accept": SAFETENSORS["content-type"]}
    return f"/v1/ops/square/{name}", {"content": body, "headers": headers}


def of_graph(op: str, name: str, *fields: str, **more: Any) -> Request:
    """Return a request for an operation on a graph; not in a mode that traces, which takes long for other reasons."""
    point = {"x": [0.5, 1.5]}
    return f"/v1/ops/{op}/{name}", {"json": {"inputs": point, "mode": "eager", **dict.fromkeys(fields, point), **more}}


def array(numbers: list[float]) -> dict[str, Any]:
    return {"shape": [len(numbers)], "dtype": "float64", "data": {"buffer": numbers, "encoding": "json"}}


def umbridge(path: str, **fields: Any) -> Iterator[Request]:
    for numbers in number_lists(1 + [*fields.values()].count(None)):
        directions = {name: numbers if value is None else value for name, value in fields.items()}
        config = {"shape": [len(numbers)]}
        yield path, {"json": {"name": "square", "config": config, "input": [numbers], **directions}}


def mcp(graph: str) -> Iterator[Request]:
    for numbers in number_lists():
        yield tool("derivative", op="square", kind="vjp", inputs={"x": numbers[:4000]})
    yield tool("derivative", op="square", kind="jacobian", inputs={"x": [0.5] * 500})
    yield tool("check", op="square", checks=["contract"])
    yield tool("show", op=graph)
    yield tool("list", contains="e")


def tool(name: str, **arguments: Any) -> Request:
    params = {"name": name, "arguments": arguments}
    return "/mcp", {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}}


def tesseract(name: str, inputs: str, outputs: str, directions: str = "") -> Iterator[Request]:
    for numbers in number_lists(2):
        body: dict[str, Any] = {"inputs": {"x": array(numbers)}, inputs: ["x"], outputs: ["y"]}
        if directions:
            body[directions] = {"y" if directions == "cotangent_vector" else "x": array(numbers)}
        yield f"/tesseract/square/{name}", {"json": body}


def infer(path: str) -> Iterator[Request]:
    for numbers in number_lists():
        tensor = {"name": "x", "datatype": "FP64", "shape": [len(numbers)], "data": numbers}
        yield path, {"json": {"inputs": [tensor]}}


# As many inputs as outputs: the Jacobian has 2 million numbers.
ROOT = 1400
# The order of a matrix whose eigenvalues take long enough for the forward pass to be kept.
ORDER = 256


def there(name: str, product: str, field: str) -> list[Request]:
    """Return requests for products at a point that was linearized: with few numbers, and with many."""
    slot, shape = ("w", (ORDER,)) if field == "cotangents" else ("a", (ORDER, ORDER))
    numbers = np.ones(shape).tolist()
    path = f"/v1/linearizations/{name}/{product}"
    return [
        (path, {"json": {field: {slot: numbers}}}),
        (path, {"json": {field: {slot: [numbers] * 4}, "batched": True}}),
    ]


def cases(
    post: Callable[..., str], linearize: Callable[[], str], job: Callable[[], str]
) -> dict[tuple[str, str], list[Request]]:
    """Return requests by the method and path of their route.

    ``post`` returns the name of a new graph, ``linearize`` the id of a new linearization, ``job`` that of a job with a
    large answer.
    """

    def model(path: str) -> list[Request]:
        graph_model, deep = f"/v2/models/{post()}.hessian{path}", f"/v2/models/{post()}.vjp.jvp{path}"
        return [(graph_model, {}), (deep, {}), (f"/v2/models/square.vjp.vjp.vjp{path}", {})]

    def models(path: str) -> dict[tuple[str, str], list[Request]]:
        return {
            ("GET", f"/v2/models/{{model}}{path}"): model(path),
            ("GET", f"/v2/models/{{model}}/versions/{{version}}{path}"): model(f"/versions/1{path}"),
        }

    memory = {
        ("POST", f"/v2/{kind}sharedmemory/{path}"): [(f"/v2/{kind}sharedmemory/{path}".replace("{region}", "a"), {})]
        for kind in ("system", "cuda")
        for path in ("unregister", "region/{region}/unregister")
    }
    pages = ["/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/Info", "/metrics"]
    pages += ["/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status"]
    pages += ["/health/live", "/health/ready", "/v1/ops", "/docs", "/docs/", "/openapi.json", "/llms.txt"]
    pages += ["/", "/explore", "/explore/"]
    long, document = "x" * 4000, graph()
    many: dict[str, Any] = {"checks": ["contract"], "ops": ["square"]}
    config = {"shape": [7], "dtype": "float64"}
    return {
        **{("GET", page): [(page, {})] for page in pages},
        **memory,
        **models(""),
        **models("/config"),
        **models("/ready"),
        ("POST", "/v2/repository/index"): [("/v2/repository/index", {"json": {"ready": True}})],
        ("POST", "/v2/models/{model}/infer"): [
            *infer("/v2/models/square/infer"),
            *infer("/v2/models/square.vjp/infer"),
        ],
        ("POST", "/v2/models/{model}/versions/{version}/infer"): [*infer("/v2/models/square/versions/1/infer")],
        ("GET", "/v2/{rest:path}"): [(f"/v2/{long}", {})],
        ("GET", "/tesseract/{rest:path}"): [(f"/tesseract/square/{long}", {}), (f"/tesseract/{long}/apply", {})],
        ("GET", "/tesseract/{op}/openapi.json"): [(f"/tesseract/{post()}/openapi.json", {})],
        ("GET", "/tesseract/{op}/health"): [(f"/tesseract/{post()}/health", {})],
        ("POST", "/tesseract/{op}/abstract_eval"): [
            (f"/tesseract/{post()}/abstract_eval", {"json": {"inputs": {"x": {"shape": [3], "dtype": "float64"}}}})
        ],
        ("POST", "/tesseract/{op}/apply"): [
            ("/tesseract/square/apply", {"json": {"inputs": {"x": array(numbers)}}}) for numbers in number_lists()
        ],
        ("POST", "/tesseract/{op}/jacobian"): [
            (
                f"/tesseract/{name}/jacobian",
                {"json": {"inputs": {"x": array([0.5] * ROOT)}, "jac_inputs": ["x"], "jac_outputs": ["y"]}},
            )
            for name in ("square", "square.vjp")
        ],
        ("POST", "/tesseract/{op}/jacobian_vector_product"): [
            *tesseract("jacobian_vector_product", "jvp_inputs", "jvp_outputs", "tangent_vector")
        ],
        ("POST", "/tesseract/{op}/vector_jacobian_product"): [
            *tesseract("vector_jacobian_product", "vjp_inputs", "vjp_outputs", "cotangent_vector")
        ],
        ("POST", "/Evaluate"): [*umbridge("/Evaluate")],
        ("POST", "/Gradient"): [*umbridge("/Gradient", outWrt=0, inWrt=0, sens=None)],
        ("POST", "/ApplyJacobian"): [*umbridge("/ApplyJacobian", outWrt=0, inWrt=0, vec=None)],
        ("POST", "/ApplyHessian"): [*umbridge("/ApplyHessian", outWrt=0, inWrt1=0, inWrt2=0, sens=None, vec=None)],
        ("POST", "/mcp"): [*mcp(post())],
        ("POST", "/ModelInfo"): [("/ModelInfo", {"json": {"name": name}}) for name in (f"{post()}.vjp", "no")],
        ("POST", "/InputSizes"): [("/InputSizes", {"json": {"name": post(), "config": config}})],
        ("POST", "/OutputSizes"): [("/OutputSizes", {"json": {"name": post(), "config": config}})],
        ("POST", "/v1/graphs"): [("/v1/graphs", {"json": each}) for each in (graph(), graph() | {"doc": "x" * 4096})],
        ("PUT", "/v1/graphs/{name}"): [(f"/v1/graphs/{post()}", {"json": document})],
        ("GET", "/v1/graphs/{name}"): [(f"/v1/graphs/{post()}", {})],
        ("GET", "/v1/ops/{op}"): [
            (f"/v1/ops/{name}", {}) for name in (post(), f"{post()}.vjp.jvp.vjp", "log1pexp.vjp.vjp.vjp")
        ],
        ("GET", "/v1/ops/{op}/source"): [("/v1/ops/square/source", {}), (f"/v1/ops/{post()}/source", {})],
        ("PUT", "/v1/ops/{op}/parameters"): [
            ("/v1/ops/square/parameters", {"content": b"", "headers": SAFETENSORS}),
            ("/v1/ops/large/parameters", {"content": b"".join(write(WEIGHTS, "{}")), "headers": SAFETENSORS}),
        ],
        ("GET", "/v1/ops/{op}/parameters/{digest}"): [
            (f"/v1/ops/square/parameters/{'0' * 64}", {}),
            (f"/v1/ops/large/parameters/{ParameterSet(WEIGHTS).digest}", {}),
        ],
        ("GET", "/v1/ops/{op}/verdict"): [("/v1/ops/square/verdict", {}), (f"/v1/ops/{post()}/verdict", {})],
        ("GET", "/explore/{op}"): [(f"/explore/{long}", {})],
        ("GET", "/explore/{op}/"): [(f"/explore/{long}/", {})],
        ("GET", "/explore/static/{version}/{path:path}"): [("/explore/static/0/explorer.html", {})],
        ("GET", "/v1/ops/{op}/{operation}"): [(f"/v1/ops/square/{long}", {})],
        ("POST", "/v1/ops/{op}/forward"): [
            *native("forward"),
            binary("forward"),
            of_graph(post(), "forward"),
            ("/v1/ops/large/forward", {"json": {"inputs": {"x": [1]}, "parameters": ParameterSet(WEIGHTS).digest}}),
        ],
        ("POST", "/v1/ops/{op}/gradients"): [*native("gradients", digits=True), of_graph(post(), "gradients")],
        ("POST", "/v1/ops/{op}/vjp"): [*native("vjp"), binary("vjp"), of_graph(post(), "vjp")],
        ("POST", "/v1/ops/{op}/jvp"): [*native("jvp", "tangents"), of_graph(post(), "jvp", "tangents")],
        ("POST", "/v1/ops/{op}/hvp"): [*native("hvp", "vectors"), of_graph(post(), "hvp", "vectors")],
        ("POST", "/v1/ops/{op}/jacobian"): [
            *native("jacobian", size=ROOT),
            *native("jacobian", sparse="coo"),
            *native("jacobian", size=ROOT // 2, digits=True),
            of_graph(post(), "jacobian"),
        ],
        ("POST", "/v1/ops/{op}/hessian"): [
            *native("hessian", size=ROOT),
            *native("hessian", sparse="csr"),
            of_graph(post(), "hessian"),
        ],
        ("POST", "/v1/ops/{op}/linearize"): [*native("linearize"), of_graph(post(), "linearize")],
        ("POST", "/v1/ops/{op}/sparsity"): [
            *native("sparsity"),
            *native("sparsity", order=2),
            of_graph(post(), "sparsity"),
        ],
        ("POST", "/v1/linearizations/{id}/vjp"): there(linearize(), "vjp", "cotangents"),
        ("POST", "/v1/linearizations/{id}/jvp"): there(linearize(), "jvp", "tangents"),
        ("POST", "/v1/linearizations/{id}/hvp"): there(linearize(), "hvp", "vectors"),
        ("GET", "/v1/linearizations/{id}"): [(f"/v1/linearizations/{linearize()}", {})],
        ("PATCH", "/v1/linearizations/{id}"): [(f"/v1/linearizations/{linearize()}", {"json": {"expires_s": 60}})],
        ("DELETE", "/v1/linearizations/{id}"): [(f"/v1/linearizations/{linearize()}", {})],
        ("GET", "/v1/jobs"): [("/v1/jobs", {}), (f"/v1/jobs?{'&'.join(100 * [f'id={job()}'])}", {})],
        ("GET", "/v1/jobs/{id}"): [("/v1/jobs/none", {}), (f"/v1/jobs/{job()}", {})],
        ("GET", "/v1/jobs/{id}/result"): [("/v1/jobs/none/result", {}), (f"/v1/jobs/{job()}/result", {})],
        ("DELETE", "/v1/jobs/{id}"): [("/v1/jobs/none", {}), (f"/v1/jobs/{job()}", {})],
        ("POST", "/v1/ops/{op}/numeric"): [*native("numeric", size=2000), of_graph(post(20), "numeric")],
        ("POST", "/v1/ops/{op}/verify"): [*native("verify", "gradients"), of_graph(post(20), "verify", "gradients")],
        ("POST", "/v1/ops/{op}/check"): [("/v1/ops/square/check", {"json": {}})],
        ("POST", "/v1/checks"): [("/v1/checks", {"json": many}), ("/v1/checks", {"json": {"ops": [long] * 1000}})],
    }


def slow_turns(service: MeasuredService, of: Container[str] | None = None) -> dict[str, str]:
    """Return the slow turns of a new service by the name of the request, for all requests or for those named."""

    def post(nodes: int = MAX_NODES) -> str:
        """Post a new graph of so many nodes, and return its name."""
        return service.client.post("/v1/graphs", json=graph(nodes)).raise_for_status().json()["name"]

    def linearize() -> str:
        """Keep the forward pass at a new point, and return its id."""
        body = {"inputs": {"a": np.diag(np.arange(1.0, ORDER + 1)).tolist()}}
        answers = [service.client.post("/v1/ops/self_adjoint_eig/linearize", json=body).json() for _ in range(2)]
        return answers[1]["linearization"]["id"]

    @cache
    def job() -> str:
        """Post a job with a large answer, and return its id when it has ended."""
        path, options = next(native("jacobian", size=ROOT))
        body = service.client.post(path, **options, headers={"prefer": "respond-async"}).raise_for_status().json()
        while body["state"] in ("waiting", "running"):
            body = service.client.get(f"/v1/jobs/{body['id']}?wait=30").raise_for_status().json()
        assert body["state"] == "done", body
        return body["id"]

    contexts = iter_route_contexts(service.app.routes)
    routes = [(context.path, context.original_route) for context in contexts]
    expected = {(m, p) for p, route in routes if isinstance(route, APIRoute) for m in route.methods or ()}
    found = cases(post, linearize, job)
    assert found.keys() == expected, "each route needs a case here: its largest legal bodies and answers"
    slow = dict[str, str]()
    for (method, route), requests in found.items():
        for i, (path, options) in enumerate(requests):
            # Twice: the first request of its kind, and one that may take the fast path or be read at once.
            for attempt in ("first", "second"):
                name = f"{method} {route}, case {i}, {attempt}"
                request = service.client.build_request(method, path, **options)
                turn_s, lock_s, response = service.longest_s(request)
                assert response.status_code != 500, response.text
                if (turn_s > LIMIT_S or lock_s > LOCK_LIMIT_S) and (of is None or name in of):
                    slow[name] = f"{path[:60]}: {1e3 * turn_s:.1f} ms of the loop, {1e3 * lock_s:.1f} ms of the lock"
    return slow


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[[], MeasuredService]]:
    """Start new services, which end with the test."""
    (tmp_path / "large.py").write_text(PAGE, encoding="utf-8")
    parameters = {"OPS_PATH": str(tmp_path), "PARAMETERS_MB": "32"}
    with ExitStack() as services:

        def start() -> MeasuredService:
            one = MeasuredService(MAX_JSON_MB="4", MAX_BODY_MB="16", DEADLINE_S="60", **parameters)
            services.callback(one.close)
            return one

        yield start


@pytest.mark.slow
def test_no_request_holds_the_event_loop(service: Callable[[], MeasuredService]) -> None:
    slow: dict[str, str] | None = None
    # The garbage collector may run in any turn, or other tests. What a request does is as slow in another service.
    for _ in range(SERVICES):
        slow = slow_turns(service(), slow)
        if not slow:
            return
    assert not slow
