"""POST /v1/graphs, and PUT and GET /v1/graphs/{name}: graphs of ops, which are ops under the names that they get."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from fastapi import Request as HttpRequest

from app.errors import NotFound, wrong
from app.execution.engine import Engine
from app.graphs.document import MAX_DOCUMENT, PREFIX, GraphDocument
from app.graphs.graph_op import GraphOp
from app.graphs.installed import OP_NAME
from app.http.request import REQUEST, Request
from app.http.route import PageRoute, RawRoute, admit, always
from app.kept.graphs import NAME
from app.requests.answering import Reply, send_reply
from app.requests.answers import JSON, accepted, content_type
from app.routes.native.catalogue import contract_text
from app.routes.native.catalogue_models import OpContract
from app.routes.protocol import find_op
from app.telemetry.accounts import Owner
from app.tensors.strict_json import Body

EXAMPLE = {
    "inputs": ["a", "x"],
    "nodes": [
        {"name": "ax", "op": "matmul", "inputs": {"a": "a", "b": "x"}},
        {"name": "norm", "op": "safe_norm", "inputs": {"x": "ax"}},
        {"name": "loss", "op": "log1pexp", "inputs": {"x": "norm"}},
    ],
    "outputs": {"y": "loss"},
}
ALL, ONE = "/v1/graphs", "/v1/graphs/{name}"
GraphName = Annotated[str, Path(pattern=f"^{NAME.pattern}$")]
KnownName = Annotated[str, Path(pattern=f"^({NAME.pattern}|{OP_NAME.pattern})$")]


def graphs(engine: Engine) -> APIRouter:
    """Return the routes of graphs."""
    router = APIRouter(tags=["graphs"], route_class=PageRoute)

    @router.get(ONE, summary="Get the document of a graph", operation_id="graph")
    async def graph(name: KnownName, http_request: HttpRequest) -> GraphDocument:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """Return the document of a graph that was posted, or that the operator has installed."""
        op = await find_op(engine, http_request.scope[REQUEST], name)
        if not isinstance(op, GraphOp):
            raise NotFound(f"op {name!r} is not a graph of ops: GET /v1/ops/{name} describes it")
        document: Any = Response(op.document.canonical, media_type=JSON)
        return document

    handler = partial(_keep, engine)
    found = always(handler, engine.counters("", "graphs"))
    options: dict[str, Any] = {
        "body": GraphDocument,
        "admit": _admit,
        "may_be_job": False,
        "tags": ["graphs"],
        "response_model": OpContract,
        "response_description": "The contract of the graph's op, which was kept already.",
        "responses": {201: {"model": OpContract, "description": "The contract of the graph's op, which is new."}},
        "openapi_extra": {"requestBody": {"content": {JSON: {"examples": {"loss": {"value": EXAMPLE}}}}}},
    }
    post = RawRoute(ALL, found, methods=["POST"], summary="Make an op of a graph", operation_id="graphs", **options)
    put = RawRoute(
        ONE,
        found,
        methods=["PUT"],
        summary="Make an op of a graph, under its name",
        operation_id="put_graph",
        parameters={"name": GraphName},
        **options,
    )
    [get] = [route for route in router.routes if isinstance(route, PageRoute)]
    get.others, put.others = ("PUT",), ("GET", "HEAD")
    router.routes += [post, put]
    return router


async def _keep(engine: Engine, request: Request) -> None:
    """Keep the graph in the body, and send its contract; raises a ``PullbackError`` for one that is not valid."""
    content_type(request.headers)
    accepted(request.headers)
    body, name = await request.read(), request.scope["path_params"].get("name")
    work, owner = partial(_kept, engine, name, request.key, body), Owner(PREFIX, request.key)
    await send_reply(await engine.describe(work, owner, request.deadline.at), request)


def _kept(engine: Engine, name: str | None, owner: str, body: Body) -> Reply:
    document = GraphDocument.read(body)
    if name is not None and name != document.name:
        raise wrong((), "the digest in the path is not that of the document", expected=document.name, got=name)
    op, is_new = engine.graphs.add(document, owner)
    headers = ((b"location", f"/v1/ops/{op.name}".encode()),)
    return Reply(JSON, [contract_text(engine, op), b"\n"], headers, status=201 if is_new else 200)


def _admit(request: Request) -> None:
    """Reserve memory for a body, which is smaller than others; raises a ``PullbackError``."""
    request.json_limit = min(request.json_limit, MAX_DOCUMENT)
    admit(request)
