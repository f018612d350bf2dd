"""The service without HTTP: how its settings build it, and its background work."""

import gc
import logging
import secrets
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from app.autodiff.admission import OWN, admit
from app.errors import CannotStart
from app.execution.batching import Batches
from app.execution.engine import Engine
from app.execution.lifecycle import Lifecycle, drain_on_term
from app.execution.quarantine import crashes_of, quarantine
from app.execution.scheduler import Scheduler
from app.execution.verdicts import Provenance, Verdicts
from app.execution.warmup import warm_up
from app.execution.watchdog import watchdog
from app.graphs.installed import ENDING, with_graphs
from app.kept.graphs import KEPT, GraphFolder
from app.kept.last_checks import LastChecks
from app.kept.linearizations import Linearizations
from app.kept.parameters import ParameterSets
from app.processes.check_process import ForkServer
from app.processes.messages import Setup
from app.processes.pool import CheckLimiter, CheckPool, Forks
from app.processes.sources import Sources
from app.runtime import cancellation, python_functions, tensor_prints
from app.runtime.devices import default_device, devices, share_gpus
from app.runtime.doctor import why_no_gpu
from app.runtime.traces import forbid_tracing
from app.settings import MB, Settings
from app.telemetry.counters import CounterTable, not_recorded
from app.telemetry.line_writer import STDERR
from app.telemetry.prometheus import Metrics
from ops import Op, Registry, RegistryError, discover, pages_of, register

# How many more objects than at the last collection start the next one.
COLLECTED = 20_000

log = logging.getLogger("pullback")


def registered(settings: Settings) -> Registry:
    """Return the ops that are served with these settings. Raises ``RegistryError`` if they cannot be registered."""
    return with_graphs(discover(settings.ops_path, admit), settings.ops_path, admit)


def registry_of(pages: Sequence[Path], begin: Callable[[Path], object] = bool) -> Registry:
    """Return the ops of these pages and graphs; a graph finds the other ops of its folder, and those of the service.

    ``begin`` is called with each page before it is imported.
    """
    folders = dict.fromkeys(page.parent for page in pages if page.name.endswith(ENDING))
    if not folders:
        own = [page.stem for page in pages if page.parent == OWN]

        def admit_beside_own(op: Op) -> None:
            if op.name not in own and (OWN / f"{op.name}.py").exists():
                raise ValueError(f"ops/{op.name}.py defines the op {op.name!r} too; rename one")
            admit(op)

        return register(_announced(pages, begin), admit_beside_own)
    every = dict.fromkeys([*pages_of([OWN, *folders]), *(page for page in pages if page.suffix == ".py")])
    found = with_graphs(register(_announced(every, begin), admit), folders, admit)
    names = {name for name, page in found.pages.items() if page in pages}
    lost = [page.name.removesuffix(ENDING).removesuffix(".py") for page in pages]
    unavailable = [each for each in found.unavailable if each.name.rpartition("/")[2] in lost]
    ops = {name: op for name, op in found.ops.items() if name in names}
    return Registry(ops, tuple(unavailable), {name: found.pages[name] for name in names}, found.stale)


def _announced(pages: Iterable[Path], begin: Callable[[Path], object]) -> Iterator[Path]:
    for page in pages:
        begin(page)
        yield page


def build(
    settings: Settings, ops: Callable[[Settings], Registry] = registered, checks: ForkServer | None = None
) -> tuple[Engine, Metrics | None]:
    """Return the engine for the ops that ``ops`` imports, and the metrics if they are enabled.

    ``checks`` is the first fork server of checks and jobs.

    Raises ``CannotStart`` when the ops cannot be registered, or when the device is missing.
    """
    cancellation.install()
    python_functions.install()
    tensor_prints.install()
    # Before the ops are imported: a module may use a GPU on import, and then it is too late.
    share_gpus(settings.gpu_memory_mb)
    has_checks = bool(settings.check_processes and settings.checks)
    sources = Sources(settings.ops_path) if has_checks or settings.jobs else None
    registry, known = _registry(settings, ops), devices()
    if plug_ins := {name: page for name, page in registry.pages.items() if page.parent != OWN}:
        listed = ", ".join(f"{name} ({page.parent.name}/{page.name})" for name, page in sorted(plug_ins.items()))
        log.info("plug-in ops: %s", listed)
    data = settings.data or Path(tempfile.gettempdir(), f"pullback-{secrets.token_hex(8)}")
    size = settings.parameters_mb * MB
    of_key = size // 2 if settings.keys_file else size
    sets = ParameterSets(data / "parameters", total=size, of_key=of_key, memory=size)
    provenance = Provenance(registry)
    shared = settings.model_copy(update={"data": data})
    changing = frozenset(sources.changed() if sources else ())
    setup, forks = Setup(shared, sources, changing, processes=settings.processes), Forks(checks)
    pool = _check_pool(setup, forks) if has_checks else None
    scheduler, lifecycle = Scheduler(settings.queue), Lifecycle(at_stop=[pool.stop] if pool else [])
    batches = Batches(scheduler, settings.queue)
    metrics = None
    if settings.metrics:
        metrics = Metrics(lambda: scheduler.waiting, lambda: batches.waiting, lambda: lifecycle.in_flight)
        metrics.describe(len(registry.ops), len(registry.unavailable), provenance.pages)
    engine = Engine(
        registry,
        scheduler,
        batches,
        known,
        default_device(settings.device, known, why_no_gpu),
        settings.max_elements,
        settings.deadline_s,
        settings.checks_s,
        metrics.counters if metrics else CounterTable().of if settings.otel else not_recorded,
        GraphFolder(data / "graphs", KEPT),
        sets,
        Verdicts(LastChecks(data / "verdicts"), provenance, are_required=settings.require_verdict is not None),
        lifecycle,
        CheckLimiter(settings.checks),
        pool,
        forks,
        setup,
        # Another worker may get the next request, and would not know the id.
        linearizations=Linearizations(settings.linearizations_mb * MB // settings.workers),
        provenance=provenance,
    )
    return engine, metrics


@asynccontextmanager
async def running(engine: Engine, metrics: Metrics | None, settings: Settings) -> AsyncGenerator[None]:
    """Inside this block the scheduler takes work, the watchdog and the warm-up run, and SIGTERM drains the service."""
    engine.scheduler.start()
    # The objects that exist now stay: the collector must not traverse TensorFlow's half a million objects every time.
    gc.collect()
    gc.freeze()
    # A turn of the event loop makes thousands of objects, and few cycles: by default the collector would run in each.
    gc.set_threshold(COLLECTED)
    # Work runs on the event loop only if it is brief: no trace is.
    forbid_tracing(("graph", "v1", "xla"))
    patience_s = settings.deadline_s + settings.grace_s
    with (
        quarantine(crashes_of(settings), settings.quarantine_s, engine.registry),
        drain_on_term(engine.lifecycle, settings.drain_s),
        watchdog(engine.scheduler, patience_s),
    ):
        warmth = warm_up(engine) if settings.warm_up else nullcontext()
        async with metrics.publishing() if metrics else nullcontext(), warmth:
            yield
        if engine.check_pool:
            engine.check_pool.stop()
        await engine.forks.close()
    remove_temporary(engine, settings)
    forbid_tracing(())
    engine.scheduler.stop()
    # A worker process ends without the functions that the interpreter calls at its exit.
    STDERR.flush()


def remove_temporary(engine: Engine, settings: Settings) -> None:
    """Remove what clients have left behind, unless the settings name a folder for it."""
    if settings.data is None and engine.setup and engine.setup.settings.data:
        shutil.rmtree(engine.setup.settings.data, ignore_errors=True)


def _check_pool(setup: Setup, forks: Forks) -> CheckPool:
    """Return the processes of checks; the sources of ``setup`` were read before the ops were loaded."""
    settings = setup.settings
    alone = {"check_processes": 0, "metrics": False, "keys_file": None, "tls_cert": None, "tls_key": None, "jobs": 0}
    own = replace(setup, settings=settings.model_copy(update=alone))
    return CheckPool(own, settings.check_processes, settings.process_memory_mb, forks)


def _registry(settings: Settings, ops: Callable[[Settings], Registry]) -> Registry:
    try:
        registry = ops(settings)
    except RegistryError as error:
        raise CannotStart(str(error)) from error
    if settings.strict and registry.unavailable:
        broken = "; ".join(f"{op.name}: {op.reason}" for op in registry.unavailable)
        raise CannotStart(f"PULLBACK_STRICT: expected every op to load, but {broken}")
    return registry
