"""The application: a chain of plain ASGI callables around FastAPI, each with one concern."""

import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.types import ASGIApp

from app.batches import Batches
from app.devices import default_device, devices, share_gpus
from app.doctor import examination, why_no_gpu
from app.engine import Engine
from app.errors import CannotStart
from app.execution import Lane
from app.lifecycle import Lifecycle, drain_on_term
from app.limits import limits
from app.metrics import Metrics
from app.observe import observe
from app.problems import HANDLERS
from app.protocols.table import counted_paths, dialect_of_path, protocols, unpacking_paths
from app.routes.catalogue import catalogue
from app.routes.checks import checks
from app.routes.derivatives import operations
from app.routes.health import health
from app.routes.metrics import metrics_page, tally_of_path
from app.routes.openapi import openapi
from app.routes.plans import Plans
from app.settings import Settings
from app.tally import uncounted
from app.warmup import warm_up
from app.watchdog import patience_s, watchdog
from ops import Registry, RegistryError, discover
from pullback import __version__

DESCRIPTION = """\
Registered TensorFlow ops with custom gradients: post tensors, get values and derivatives of every order.

Errors are `application/problem+json`: they say where, what was expected and what came.
"""


def create_app(settings: Settings | None = None) -> ASGIApp:
    """Return the application for these settings, or for the environment's.

    Raises ``CannotStart`` when the ops cannot be registered, or when the device is not there.
    """
    settings = settings or Settings()
    # First of all: an op's module may use a GPU as it is imported, and then it is too late.
    share_gpus(settings.gpu_memory_mb)
    registry = _registry(settings)
    known = devices()
    lane, lifecycle = Lane(settings.queue), Lifecycle()
    batches = Batches(lane, settings.queue)
    metrics = Metrics(lane, batches, lifecycle) if settings.metrics else None
    engine = Engine(
        registry,
        lane,
        batches,
        known,
        default_device(settings.device, known, why_no_gpu),
        settings.max_elements,
        settings.deadline_s,
        settings.checks_s,
        settings.check_work,
        metrics.tally if metrics else uncounted,
        lifecycle,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        del app
        lane.start()
        # What is there now stays: the collector need not look at TensorFlow's half a million objects again and again.
        gc.collect()
        gc.freeze()
        with drain_on_term(lifecycle, settings.drain_s), watchdog(lane, patience_s(settings)):
            async with metrics.kept_up() if metrics else nullcontext(), warm_up(engine):
                yield
        lane.stop()

    # With its own copy of the page's scripts: a server is often where the internet is not.
    fastapi = FastAPIOffline(
        title="Pullback",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        exception_handlers={**HANDLERS},
        redirect_slashes=False,
        redoc_url=None,
    )
    fastapi.include_router(catalogue(engine))
    fastapi.include_router(health(engine, examination(settings, registry)))
    if metrics:
        fastapi.include_router(metrics_page(metrics))
    fastapi.openapi = openapi(fastapi, registry.ops)
    plans, others = Plans(engine), settings.protocols
    answering = checks(operations(protocols(fastapi, engine, plans, others), engine, plans), engine)
    tally_of = tally_of_path(engine.tally, registry.ops, counted_paths(others, registry.ops.values()))
    inner = limits(answering, settings, unpacking_paths(others))
    return observe(inner, settings, lifecycle, tally_of, dialect_of_path(others))


def _registry(settings: Settings) -> Registry:
    try:
        registry = discover(settings.ops_path)
    except RegistryError as error:
        raise CannotStart(str(error)) from error
    if settings.strict and registry.unavailable:
        broken = "; ".join(f"{op.name}: {op.reason}" for op in registry.unavailable)
        raise CannotStart(f"PULLBACK_STRICT: expected every op to load, but {broken}")
    return registry
