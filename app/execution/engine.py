"""The engine, which every protocol uses: the ops, the scheduler, the devices and the limits."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

from app.autodiff.default_mode import default_mode
from app.autodiff.derived import derived, known_derived, with_values
from app.autodiff.evaluation import Evaluation
from app.errors import NotFound, Overloaded, Postponed, did_you_mean, too_late, wrong
from app.execution.batching import Batches
from app.execution.calls import Call, CheckRun, Portioned, with_time_to_answer
from app.execution.lifecycle import Lifecycle
from app.execution.scheduler import CheckerInService, Scheduler
from app.execution.tickets import STUCK_S
from app.execution.verdicts import Provenance, Verdicts
from app.gradcheck.job import Job
from app.gradcheck.report import Report
from app.graphs.document import PREFIX
from app.kept.graphs import GraphFolder, GraphStore
from app.kept.linearizations import Linearizations, Sparsities
from app.kept.parameters import ParameterSets
from app.processes.checker import CheckerInProcesses
from app.processes.messages import Setup
from app.processes.pool import CheckLimiter, CheckPool, Forks
from app.processes.steps import Checker, Limits, OpChecks, note_progress
from app.telemetry.accounts import Owner
from app.telemetry.counters import Counters
from ops import Mode, Op, ParameterSet, Registry

Count: TypeAlias = Callable[[str, str], Counters]
"""Returns the counters of an op and an operation."""

Result = TypeVar("Result")

# The part of the time of a stream of checks that one op may have.
PART_OF_OP = 1 / 5


class NotAtHand(Postponed):
    """Something must be read or made first: an op, or values of parameters. ``make`` does it, for a key."""

    def __init__(self, op: str, make: Callable[[str], object]) -> None:
        """Take the name of the op whose work it is, and the work."""
        super().__init__(op)
        self.op, self.make = op, make


@dataclass(frozen=True)
class Engine:
    """The service behind its routes.

    ``deadline_s`` limits the time of a request, ``checks_s`` that of a stream of checks. ``counters`` returns the
    counters of an operation on an op. Checks run in the processes of ``check_pool``, without it on the scheduler.
    ``forks`` has their fork server, and ``setup`` is what they have in common with the processes of jobs.
    ``graph_folder`` has the posted graphs, ``sets`` the parameters that clients have put, ``verdicts`` the last
    checks, ``linearizations`` the forward passes that are kept, ``sparsities`` where derivatives have nonzeros, and
    ``provenance`` the versions of what is served. ``after_reading`` frees what refers to parameters that made room for
    others.
    """

    registry: Registry
    scheduler: Scheduler
    batches: Batches
    devices: Mapping[str, str]
    default_device: str
    max_elements: int
    deadline_s: float
    checks_s: float
    counters: Count
    graph_folder: GraphFolder
    sets: ParameterSets
    verdicts: Verdicts
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    checks: CheckLimiter = field(default_factory=CheckLimiter)
    check_pool: CheckPool | None = None
    forks: Forks = field(default_factory=Forks)
    setup: Setup | None = None
    linearizations: Linearizations = field(default_factory=lambda: Linearizations(0))
    sparsities: Sparsities = field(default_factory=Sparsities)
    provenance: Provenance = field(default_factory=lambda: Provenance(Registry({})))
    after_reading: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    async def run(self, call: Call) -> Any:
        """Return what the work of a call computes; for an evaluation, the results for its ``finish``.

        Steps wait for their turn. Raises the errors of ``Scheduler.run``, and those of a check.
        """
        work = call.work
        if isinstance(work, CheckRun):
            return await self._check(work, call)
        queue = "long" if call.is_long or call.is_large else "short"
        if isinstance(work, Evaluation):
            return await self.batches.run(
                work,
                queue=queue,
                deadline=call.deadline,
                owner=call.owner,
                counters=call.counters,
                account=call.account,
                is_alone=call.is_alone,
            )
        turn = partial(
            self.scheduler.run,
            queue=queue,
            deadline=call.deadline,
            owner=call.owner,
            counters=call.counters,
            account=call.account,
        )
        if isinstance(work, Portioned):
            while not await turn(work.run_portion):
                note_progress(*work.progress)
            return work.result
        return await turn(work)

    async def report(self, job: Job, deadline: float, owner: Owner) -> Report:
        """Return an empty report with the steps of a check; raises ``Unprocessable`` if the op rejects the inputs."""
        op = await self.find_op(job.op, deadline)
        return await self.scheduler.run(
            lambda checkpoint: job.report(self.with_parameters(op, job)), queue="check", deadline=deadline, owner=owner
        )

    @property
    def checker(self) -> Checker:
        """What runs checks."""
        if self.check_pool is None:
            return CheckerInService(self.scheduler)
        return CheckerInProcesses(self.check_pool, self.registry.pages)

    @property
    def check_op_s(self) -> float:
        """The limit of the time of the checks of one op in a stream."""
        return self.checks_s * PART_OF_OP

    @property
    def checks_at_once(self) -> int:
        """How many checks of a stream run at the same time."""
        return 1 if self.check_pool is None else self.check_pool.count

    async def _check(self, run: CheckRun, call: Call) -> Any:
        allowed = Limits(with_time_to_answer(call.deadline))
        async with self.checks.place():
            report = await self.report(run.job, allowed.until, call.owner)
            limits = allowed.within(run.budget_s)
            begun = 0
            async for _ in self.checker.steps(
                OpChecks(run.job, report, limits, call.owner, call.counters, call.account)
            ):
                note_progress(begun, len(report.steps))
                begun += 1
        if report.steps and not report.has_begun and limits is allowed:
            raise too_late()
        return await self.document(run.job, report)

    async def document(self, job: Job, report: Report) -> dict[str, Any]:
        """Return the report of a check that has ended as JSON, with what computed the op, and keep its verdict."""
        found = await asyncio.to_thread(lambda: {**report.document(), "origin": {**self.provenance.of(report.op)}})
        await self._note(job, found)
        return found

    async def _note(self, job: Job, report: Mapping[str, Any]) -> None:
        """Keep the verdict of a check that has ended, if it is one on a whole op, registered or a posted graph."""
        is_done = not report["unfinished"] or report["verdict"] == "fail"
        op = self.registry.ops.get(job.op) or self.graphs.known(job.op)
        if op is not None and job.is_whole and is_done:
            options = job.options
            await asyncio.to_thread(self.verdicts.note, op, report["verdict"], options.seed, list(options.devices))

    def need_ready(self) -> None:
        """Raise ``Overloaded`` while the service is not ready: it drains, or is stuck in a computation."""
        if self.lifecycle.draining:
            raise Overloaded("draining: the service is about to stop")
        for late in self.scheduler.overruns():
            if late.seconds > STUCK_S:
                raise late.refusal

    def op(self, name: str) -> Op:
        """Return a registered op, a posted graph, or an op that is derived from one, such as ``square.vjp``.

        A graph may have to be read from a file and built, so this may take long: the event loop uses ``find_op``.
        Raises ``NotFound`` with near names, or with the reason why the op is unavailable or cannot be derived.
        """
        base, derivations = _split(name)
        return derived(self._registered(base, name) or self.graphs.op(base), name, derivations)

    def known_op(self, name: str) -> Op | None:
        """Return what ``op`` does if that takes no time, otherwise ``None``; raises ``NotFound`` for an unknown op."""
        base, derivations = _split(name)
        op = self._registered(base, name) or self.graphs.known(base)
        return None if op is None else known_derived(op, derivations)

    async def find_op(self, name: str, deadline: float, key: str = "") -> Op:
        """Return what ``op`` does, without holding the event loop; raises the errors of ``op`` and ``describe``."""
        op = self.known_op(name)
        return op or await self.describe(partial(self.op, name), Owner(self.owner(name), key), deadline)

    def op_at_hand(self, name: str) -> Op:
        """Return what ``op`` does; raises ``NotAtHand`` if that takes time, and ``NotFound`` for an unknown op."""
        op = self.known_op(name)
        if op is None:
            raise NotAtHand(self.owner(name), lambda key: self.op(name))
        return op

    async def with_all(self, attempt: Callable[[], Awaitable[Result]], deadline: float, key: str = "") -> Result:
        """Return ``await attempt()``, once all ops and parameters that it needs are at hand.

        Raises the errors of both. ``key`` is the name of the key of the request.
        """
        while True:
            try:
                return await attempt()
            except NotAtHand as missing:
                make, owner = partial(missing.make, key), Owner(missing.op, key)
            await self.describe(make, owner, deadline)
            for act in self.after_reading:
                act()

    def owner(self, name: str) -> str:
        """Return the owner of an op, "" if there is no such op; it reads no file."""
        registered = name.partition(".")[0]
        return registered if registered == PREFIX or registered in self.registry.ops else ""

    async def describe(self, work: Callable[[], Result], owner: Owner, deadline: float) -> Result:
        """Return ``work()``, which describes or makes ops, run in the turn of ``owner``.

        Raises the errors of ``Scheduler.run`` and of the work.
        """
        return await self.scheduler.run(lambda checkpoint: work(), queue="catalogue", deadline=deadline, owner=owner)

    def _registered(self, base: str, name: str) -> Op | None:
        """Return a registered op, ``None`` for a graph; raises ``NotFound``, with the whole ``name``."""
        if base.startswith(f"{PREFIX}."):
            return None
        op = self.registry.ops.get(base)
        if op is None:
            for broken in self.registry.unavailable:
                if broken.name == base:
                    raise NotFound(f"op {name} is unavailable: {broken.reason}")
            raise NotFound(f"unknown op {name!r}; {did_you_mean(base, self.registry.ops)}")
        return op

    @cached_property
    def graphs(self) -> GraphStore:
        """The graphs that were posted, whose nodes are registered and derived ops."""
        return GraphStore(self.op, self.graph_folder)

    def parameters(self, op: Op, digest: str | None) -> ParameterSet:
        """Return the values of an op's parameters with a digest, ``None`` for those of its page.

        Raises ``Unprocessable`` for an op without parameters, and ``NotAtHand`` for those that must be read first.
        """
        own = op.own_parameters
        if digest is None:
            return own
        if not own.arrays:
            raise wrong(("parameters",), f"op {op.name} has no parameters", expected="no such field", got=digest)
        found = self.sets.known(op, digest)
        if found is None:
            raise NotAtHand(op.owner, lambda key: self.sets.find(op, digest, key))
        return found

    def with_parameters(self, op: Op, job: Job) -> Op:
        """Return the op that a check examines, with the parameters that it names; it may read a file.

        Raises ``NotFound`` for an unknown digest.
        """
        return op if job.parameters is None else with_values(op, self.sets.find(op, job.parameters))

    def default_mode(self, op: Op, dtype: str | None, device: str | None) -> Mode:
        """Return the default mode of an op, for a dtype (``None``: the op's first) and a device."""
        return default_mode(op, dtype or op.dtypes[0], device or self.default_device)

    def device(self, name: str | None) -> str:
        """Return TensorFlow's name of a device; raise ``Unprocessable`` for an unknown one."""
        if name is not None and name not in self.devices:
            expected = f"one of {', '.join(self.devices)}"
            raise wrong(("device",), "unknown device", expected=expected, got=name)
        return self.devices[name or self.default_device]


def _split(name: str) -> tuple[str, list[str]]:
    """Return the name of a registered op or a graph, and the derivations that follow it in ``name``."""
    base, *derivations = name.split(".")
    return (f"{base}.{derivations[0]}", derivations[1:]) if base == PREFIX and derivations else (base, derivations)
