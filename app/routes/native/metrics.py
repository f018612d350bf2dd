"""GET /metrics, for Prometheus, and which paths are counted as what."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from app.execution.engine import Count
from app.requests.operations import OPERATIONS
from app.telemetry.counters import Counters
from app.telemetry.prometheus import Metrics

ON_AN_OP = (*OPERATIONS, "check", "verify")
ON_NONE = {
    "/v1/ops": "catalogue",
    "/v1/checks": "checks",
    "/health/live": "health",
    "/health/ready": "health",
    "/metrics": "metrics",
    "/docs": "docs",
    "/openapi.json": "docs",
}
OTHER = "other"


def metrics_page(metrics: Metrics) -> APIRouter:
    """Return the route of the metrics."""
    router = APIRouter(tags=["health"])

    @router.get("/metrics", summary="Get the metrics for Prometheus", response_class=PlainTextResponse)
    async def page(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """Return the metrics of all workers as text, in OpenMetrics if the client accepts it."""
        metrics.tell()
        text, media_type = await asyncio.to_thread(metrics.text, request.headers.get("accept", ""))
        return Response(text, media_type=media_type)

    return router


def tally_of_path(count: Count, ops: Iterable[str], more: Mapping[str, tuple[str, str]]) -> Callable[[str], Counters]:
    """Return what finds the counters of a request by its path.

    There is one for each path that is known, and one for all the rest: no client can make another. ``more`` has those
    of other protocols, with the op and the operation that each is counted as.
    """
    counters = {path: count("", operation) for path, operation in ON_NONE.items()}
    for op in ops:
        counters[f"/v1/ops/{op}"] = count("", "catalogue")
        counters |= {f"/v1/ops/{op}/{operation}": count(op, operation) for operation in ON_AN_OP}
    counters |= {path: count(*labels) for path, labels in more.items()}
    other = count("", OTHER)
    return lambda path: counters.get(path, other)
