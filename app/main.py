"""The application: the access log, the checks of origin, key and limits, the routes, and FastAPI for the pages."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.types import ASGIApp

from app.execution.assembly import build, running
from app.execution.engine import Engine
from app.execution.lifecycle import LIFECYCLE
from app.fast_path.fast_path import FastPath
from app.http.access_log import AccessLog, observe
from app.http.body import Budget
from app.http.fast_path import FAST_PATH
from app.http.keys import Keys, with_key
from app.http.limits import limits
from app.http.origins import cors, origins
from app.http.problems import HANDLERS
from app.requests.plans import Plans
from app.routes.native.catalogue import catalogue
from app.routes.native.docs import docs_page
from app.routes.native.health import health
from app.routes.native.metrics import metrics_page
from app.routes.native.openapi import document, openapi, with_keys
from app.routes.native.openapi_by_op import OP_PATHS, by_op
from app.routes.router import Router
from app.runtime.doctor import examination
from app.settings import MB, Settings
from app.telemetry.prometheus import Metrics
from pullback import __version__

DESCRIPTION = """\
TensorFlow ops with custom gradients: post tensors, get values and derivatives of every order.

Errors are `application/problem+json`: the location, what was expected and what was received.
"""


def create_app(settings: Settings | None = None) -> ASGIApp:
    """Return the application for these settings, by default those of the environment.

    Raises ``CannotStart`` when the ops cannot be registered, when the device is missing, or when the file of keys is
    invalid.
    """
    settings = settings or Settings()
    keys = Keys(settings.keys_file, settings.key_inflight) if settings.keys_file else None
    budget = Budget(settings.max_inflight_mb * MB)
    limited = limits(settings, budget)
    handler = origins(settings, with_key(keys, limited) if keys else limited)
    engine, metrics = build(settings)
    log, shared = AccessLog(settings, metrics), dict[str, Any]({LIFECYCLE: engine.lifecycle})
    fast_path = FastPath(engine, budget, log, keys)
    if settings.express:
        shared[FAST_PATH] = fast_path
    plans, pages = Plans(engine), _pages(engine, metrics, settings, shared)
    if metrics:
        document = "Validated requests in the cache, without their tensors."
        metrics.gauge("pullback_plans_kept", document, lambda: len(plans))
        document = "Requests answered on the fast path."
        metrics.counter("pullback_express_requests", document, lambda: fast_path.answered)
    router = Router(engine, plans, pages, settings.protocols)
    return cors(settings, observe(handler, router, pages, log, engine.lifecycle))


def _pages(engine: Engine, metrics: Metrics | None, settings: Settings, shared: Mapping[str, Any]) -> FastAPI:
    """Return the pages that FastAPI serves: the catalogue, health, metrics, and the documentation of every path.

    ``shared`` is the state that the application shares with the server while it runs.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[Mapping[str, Any]]:
        del app
        async with running(engine, metrics, settings):
            yield shared

    # With its own copy of the scripts of the documentation: servers often have no access to the internet.
    fastapi = FastAPIOffline(
        title="Pullback",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        exception_handlers={**HANDLERS},
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=OP_PATHS,
        # One group of paths for each op, without the schemas below them.
        swagger_ui_parameters={"docExpansion": "none", "defaultModelsExpandDepth": -1},
    )
    fastapi.include_router(docs_page(fastapi))
    fastapi.include_router(catalogue(engine))
    fastapi.include_router(health(engine, examination(settings, engine.registry)))
    if metrics:
        fastapi.include_router(metrics_page(metrics))
    secured = with_keys if settings.keys_file else dict[str, Any]
    fastapi.openapi = cache(lambda: secured(by_op(fastapi, engine)))
    fastapi.include_router(document(cache(lambda: secured(openapi(fastapi, engine)))))
    return fastapi
