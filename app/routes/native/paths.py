"""The paths of the native API, and of FastAPI's pages."""

from starlette.types import ASGIApp

from app.errors import NotFound, did_you_mean
from app.execution.engine import Engine
from app.http.request import Request, Route
from app.requests.operations import OPERATIONS
from app.requests.plans import Plans
from app.routes.native.checks import CheckHandler, StreamHandler, VerifyHandler
from app.routes.native.derivatives import OperationHandler
from app.routes.native.health import Live
from app.routes.native.openapi_by_op import OP_PATHS
from app.routes.protocol import DerivedRoutes, Routes, need_method
from ops import Op

# The counter label for each page.
PAGES = {
    "/v1/ops": "catalogue",
    "/health/live": "health",
    "/health/ready": "health",
    "/metrics": "metrics",
    "/docs": "docs",
    "/openapi.json": "docs",
    OP_PATHS: "docs",
}

LIVE_BODY = Live().model_dump_json().encode()
LIVE_HEADERS = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(LIVE_BODY)))


def routes(engine: Engine, plans: Plans, pages: ASGIApp) -> Routes:
    """Return the routes of every operation and check on every op; ``pages`` serves all other paths."""

    async def page(request: Request) -> None:
        # FastAPI answers no HEAD. The server does not send the body of the answer.
        scope = {**request.scope, "method": "GET"} if request.method == "HEAD" else request.scope
        await pages(scope, request.receive, request.send)

    async def live(request: Request) -> None:
        # A probe must not wait long behind others: FastAPI would take several times as long for each.
        if request.method in ("GET", "HEAD"):
            await request.respond(200, LIVE_HEADERS, LIVE_BODY)
        else:
            await page(request)

    def of_op(op: Op) -> dict[str, Route]:
        path = f"/v1/ops/{op.name}"
        found = {path: Route(page, counters=engine.counters("", "catalogue"))}
        for operation in OPERATIONS.values():
            counters = engine.counters(op.owner, operation.name)
            handler = OperationHandler(engine, plans, op, operation, counters)
            found[f"{path}/{operation.name}"] = Route(handler, counters=counters)
        for name, check in (("check", CheckHandler), ("verify", VerifyHandler)):
            counters = engine.counters(op.owner, name)
            found[f"{path}/{name}"] = Route(check(engine, op, counters), counters=counters)
        return found

    async def other(request: Request) -> None:
        match request.path.split("/"):
            case ["", "v1", "ops", op, operation]:
                known = (*OPERATIONS, "check", "verify")
                if operation not in known:
                    raise NotFound(f"unknown operation {operation!r}; {did_you_mean(operation, known)}")
                need_method(request, "POST")
                engine.op(op)  # raises, because the paths of known ops are in by_path
            case _:
                await page(request)

    by_path = {path: Route(page, counters=engine.counters("", label)) for path, label in PAGES.items()}
    by_path["/health/live"] = Route(live, counters=engine.counters("", PAGES["/health/live"]))
    by_path["/v1/checks"] = Route(StreamHandler(engine), counters=engine.counters("", "checks"))
    for op in engine.registry.ops.values():
        by_path |= of_op(op)
    unknown, derived = Route(other, counters=engine.counters("", "other")), DerivedRoutes(engine, of_op)

    def find(path: str) -> Route:
        match path.split("/"):
            case ["", "v1", "ops", op, *_] if "." in op:
                return derived.find(op, path) or unknown
            case _:
                return unknown

    return Routes(by_path, find)
