"""The application: FastAPI with a router for each API, behind the front door."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import cache, partial
from importlib import import_module
from typing import Any

from fastapi import FastAPI

from app.execution.assembly import build, registered, running
from app.execution.engine import Engine
from app.execution.lifecycle import LIFECYCLE
from app.fast_path.fast_path import FastPath
from app.http.access_log import AccessLog
from app.http.body import Budget
from app.http.fast_path import FAST_PATH
from app.http.first_request import first_request
from app.http.front_door import FrontDoor
from app.http.keys import keys_of
from app.http.origins import Cors, Origins
from app.http.problems import HANDLERS
from app.http.route import RawRoute, add_routes, documented_headers
from app.jobs.line import JobLine, job_line
from app.processes.check_process import ForkServer
from app.requests.plans import Plans
from app.routes.native.catalogue import catalogue
from app.routes.native.docs import docs, unknown_path
from app.routes.native.explorer import explorer
from app.routes.native.graphs import graphs
from app.routes.native.health import health
from app.routes.native.jobs import deferring, job_routes
from app.routes.native.metrics import metrics_page
from app.routes.native.openapi import openapi, with_keys
from app.routes.native.paths import routes as native_routes
from app.runtime.doctor import examination
from app.runtime.refused import REFUSED
from app.settings import MB, PROTOCOLS, Settings
from app.telemetry.accounts import Accounts
from app.telemetry.prometheus import Metrics
from ops import Registry
from pullback import __version__

TRACING = "app.telemetry.spans"
"""The module that makes spans, and imports OpenTelemetry."""
DESCRIPTION = f"""\
TensorFlow ops with custom gradients: post tensors, get values and derivatives of every order.

A first request, to a service at its default address without keys:

```sh
{first_request()}
```

The answer is log(1 + eˣ) at 0 and at 100, and its first and second derivatives there.

Errors are `application/problem+json`: the location, what was expected and what was received.
"""


def create_app(
    settings: Settings | None = None,
    ops: Callable[[Settings], Registry] = registered,
    checks: ForkServer | None = None,
) -> FastAPI:
    """Return the application for these settings, by default those of the environment, and the ops that ``ops`` imports.

    The processes of checks and jobs are forks of ``checks``; if it is missing, or has ended, another one starts.
    Raises ``CannotStart`` when the ops cannot be registered, when the device is missing, or when the file of keys is
    invalid.
    """
    settings = settings or Settings()
    accounts = Accounts()
    keys = keys_of(settings, accounts)
    budget, (engine, metrics) = Budget(settings.max_inflight_mb * MB), build(settings, ops, checks)
    jobs = job_line(engine, settings, keys.charge if keys else lambda key, seconds: None)
    tracing = import_module(TRACING).Spans() if settings.otel else None
    log, shared = AccessLog(settings, tracing), dict[str, Any]({LIFECYCLE: engine.lifecycle})
    fast_path, plans = FastPath(engine, budget, log, keys), Plans(engine)
    if settings.express:
        shared[FAST_PATH] = fast_path
    if metrics:
        metrics.accounts = accounts
        _count(metrics, engine, plans, fast_path, jobs)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[Mapping[str, Any]]:
        """Yield the state that the application shares with the server while it runs."""
        del app
        async with running(engine, metrics, settings), jobs or nullcontext():
            yield shared
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    app = FastAPI(
        title="Pullback",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        exception_handlers={**HANDLERS},
        redirect_slashes=False,
        openapi_url=None,
        # The service has its own metrics. FastAPI would look for those of OpenTelemetry at each request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.engine, app.router.default = engine, unknown_path
    for routes in (native_routes, *(import_module(PROTOCOLS[name]).routes for name in settings.protocols)):
        add_routes(app, routes(engine, plans))
    app.include_router(health(engine, examination(settings, engine.registry)))
    app.include_router(catalogue(engine))
    add_routes(app, graphs(engine))
    if jobs:
        add_routes(app, job_routes(engine, jobs))
    if metrics:
        app.include_router(metrics_page(metrics))
    app.include_router(docs(app))
    app.include_router(explorer())
    secured = with_keys if keys else dict[str, Any]
    app.openapi = cache(lambda: secured(openapi(app, engine)))
    # The last is the outermost.
    app.add_middleware(
        FrontDoor,
        settings=settings,
        log=log,
        lifecycle=engine.lifecycle,
        counters=engine.counters("", "other"),
        budget=budget,
        origins=Origins(settings),
        keys=keys,
        defer=deferring(jobs) if jobs else None,
        routes=[route for route in app.routes if isinstance(route, RawRoute)],
    )
    if settings.origins:
        app.add_middleware(Cors, settings=settings, exposed=documented_headers(app))
    return app


def _count(metrics: Metrics, engine: Engine, plans: Plans, fast_path: FastPath, jobs: JobLine | None) -> None:
    """Add the metrics of what the application keeps and answers."""
    document = "Validated requests in the cache, without their tensors."
    metrics.gauge("pullback_plans_kept", document, lambda: len(plans))
    document = "Posted graphs in the memory of the process."
    metrics.gauge("pullback_graphs_kept", document, lambda: len(engine.graphs))
    document = "Bytes of put parameters in the memory of the process."
    metrics.gauge("pullback_parameter_bytes", document, lambda: engine.sets.size)
    document = "Forward passes that are kept for products at their points."
    metrics.gauge("pullback_linearizations_kept", document, lambda: len(engine.linearizations))
    document = "Bytes of the forward passes that are kept."
    metrics.gauge("pullback_linearization_bytes", document, lambda: engine.linearizations.size)
    document = "Traces that go on long past their deadlines: each keeps a thread until it ends."
    metrics.gauge("pullback_traces_late", document, lambda: len(engine.scheduler.late_traces()))
    if jobs:
        for state in ("waiting", "running"):
            document = f"Jobs of the service that are {state}."
            metrics.gauge(f"pullback_jobs_{state}", document, partial(jobs.count, state), "max")
        metrics.gauge("pullback_job_bytes", "Bytes of jobs and their answers.", partial(jobs.count, "bytes"), "max")
        metrics.counter("pullback_jobs_ended", "Jobs that have ended.", lambda: jobs.ended)
    document = "Ops that do not run now, because they crashed a process."
    metrics.gauge("pullback_ops_quarantined", document, lambda: len(REFUSED), "max")
    document = "Requests answered on the fast path."
    metrics.counter("pullback_express_requests", document, lambda: fast_path.answered)
