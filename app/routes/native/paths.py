"""The routes of the native API that compute: operations and checks on ops."""

from fastapi import APIRouter

from app.errors import NotFound, did_you_mean
from app.execution.engine import Engine
from app.http.request import Request
from app.http.route import RestRoute, always
from app.requests.operations import OPERATIONS
from app.requests.plans import Plans
from app.routes.native.check_routes import check_routes
from app.routes.native.derivatives import operation_routes


def routes(engine: Engine, plans: Plans) -> APIRouter:
    """Return the routes that compute."""
    router = APIRouter()
    router.routes += [*operation_routes(engine, plans), *check_routes(engine)]
    unknown = always(_unknown_operation, engine.counters("", "other"))
    router.routes.append(RestRoute("/v1/ops/{op}/{operation}", unknown, include_in_schema=False))
    return router


async def _unknown_operation(request: Request) -> None:
    operation, known = request.scope["path_params"]["operation"], (*OPERATIONS, "check", "verify")
    raise NotFound(f"unknown operation {operation!r}; {did_you_mean(operation, known)}")
