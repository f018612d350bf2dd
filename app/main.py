"""The application: access log, limits and router around the handlers of all paths, and FastAPI for the pages."""

from contextlib import AbstractAsyncContextManager
from functools import cache, partial

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.types import ASGIApp

from app.execution.assembly import build, running
from app.execution.engine import Engine
from app.http.access_log import observe
from app.http.limits import limits
from app.http.problems import HANDLERS
from app.routes.native.catalogue import catalogue
from app.routes.native.health import health
from app.routes.native.metrics import metrics_page
from app.routes.native.op_paths import OP_PATHS, by_op
from app.routes.native.openapi import document, openapi
from app.routes.router import Router
from app.runtime.doctor import examination
from app.settings import Settings
from app.telemetry.prometheus import Metrics
from pullback import __version__

DESCRIPTION = """\
TensorFlow ops with custom gradients: post tensors, get values and derivatives of every order.

Errors are `application/problem+json`: the location, what was expected and what was received.
"""


def create_app(settings: Settings | None = None) -> ASGIApp:
    """Return the application for these settings, by default those of the environment.

    Raises ``CannotStart`` when the ops cannot be registered, or when the device is missing.
    """
    settings = settings or Settings()
    engine, metrics = build(settings)
    pages = _pages(engine, metrics, settings)
    router = Router(engine, pages, settings.protocols)
    return observe(limits(settings), router, pages, settings, engine.lifecycle)


def _pages(engine: Engine, metrics: Metrics | None, settings: Settings) -> FastAPI:
    """Return the pages that FastAPI serves: the catalogue, health, metrics, and the documentation of every path."""

    def lifespan(app: FastAPI) -> AbstractAsyncContextManager[None]:
        del app
        return running(engine, metrics, settings)

    # With its own copy of the scripts of the documentation: servers often have no access to the internet.
    fastapi = FastAPIOffline(
        title="Pullback",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        exception_handlers={**HANDLERS},
        redirect_slashes=False,
        redoc_url=None,
        openapi_url=OP_PATHS,
        # One group of paths for each op, without the schemas below them.
        swagger_ui_parameters={"docExpansion": "none", "defaultModelsExpandDepth": -1},
    )
    fastapi.include_router(catalogue(engine))
    fastapi.include_router(health(engine, examination(settings, engine.registry)))
    if metrics:
        fastapi.include_router(metrics_page(metrics))
    fastapi.openapi = cache(partial(by_op, fastapi, engine))
    fastapi.include_router(document(cache(partial(openapi, fastapi, engine))))
    return fastapi
