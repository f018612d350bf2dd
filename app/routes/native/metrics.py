"""GET /metrics, for Prometheus."""

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from app.http.route import PageRoute
from app.telemetry.prometheus import Metrics


def metrics_page(metrics: Metrics) -> APIRouter:
    """Return the route of the metrics."""
    router = APIRouter(tags=["metrics"], route_class=PageRoute)

    @router.get("/metrics", summary="Get the metrics for Prometheus", response_class=PlainTextResponse)
    async def page(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """Return the metrics of all workers as text, in OpenMetrics if the client accepts it."""
        metrics.publish()
        text, media_type = await asyncio.to_thread(metrics.text, request.headers.get("accept", ""))
        return Response(text, media_type=media_type)

    return router
