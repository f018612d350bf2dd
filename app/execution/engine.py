"""The engine, which every protocol uses: the ops, the lane, the devices and the limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.autodiff.default_mode import default_mode
from app.autodiff.derived import derived
from app.errors import NotFound, Overloaded, did_you_mean, wrong
from app.execution.batching import Batches
from app.execution.check_places import CheckPlaces
from app.execution.lane import Lane
from app.execution.lifecycle import Lifecycle
from app.telemetry.counters import Counters
from ops import Mode, Op, Registry

Count: TypeAlias = Callable[[str, str], Counters]
"""Returns the counters of an op and an operation."""

# A kernel cannot be interrupted; one that is so long past its deadline counts as stuck.
STUCK_S = 5.0


@dataclass(frozen=True)
class Engine:
    """The service behind its routes.

    ``deadline_s`` limits the time of a request, ``checks_s`` that of a stream of checks. ``check_work`` limits the
    numbers that one numeric derivative may request from an op. ``counters`` returns the counters of an operation on an
    op.
    """

    registry: Registry
    lane: Lane
    batches: Batches
    devices: Mapping[str, str]
    default_device: str
    max_elements: int
    deadline_s: float
    checks_s: float
    check_work: int
    counters: Count
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    checks: CheckPlaces = field(default_factory=CheckPlaces)

    def need_ready(self) -> None:
        """Raise ``Overloaded`` while the service is not ready: it drains, or is stuck in a computation."""
        if self.lifecycle.draining:
            raise Overloaded("draining: the service is about to stop")
        for late in self.lane.overruns():
            if late.seconds > STUCK_S and not late.is_tracing:
                raise Overloaded(f"stuck: op {late.owner} is {late.seconds:.0f} s past its deadline", retry_after_s=5)

    def op(self, name: str) -> Op:
        """Return a registered op, or one that is derived from it, such as ``square.vjp``.

        Raises ``NotFound`` with near names, or with the reason why the op is unavailable or cannot be derived.
        """
        registered, *derivations = name.split(".")
        op = self.registry.ops.get(registered)
        if op is None:
            for broken in self.registry.unavailable:
                if broken.name == registered:
                    raise NotFound(f"op {name} is unavailable: {broken.reason}")
            raise NotFound(f"unknown op {name!r}; {did_you_mean(registered, self.registry.ops)}")
        return derived(op, name, derivations) if derivations else op

    def default_mode(self, op: Op, dtype: str | None, device: str | None) -> Mode:
        """Return the default mode of an op, for a dtype (``None``: the op's first) and a device."""
        return default_mode(op, dtype or op.dtypes[0], device or self.default_device)

    def device(self, name: str | None) -> str:
        """Return TensorFlow's name of a device; raise ``Unprocessable`` for an unknown one."""
        if name is not None and name not in self.devices:
            expected = f"one of {', '.join(self.devices)}"
            raise wrong(("device",), "unknown device", expected=expected, got=name)
        return self.devices[name or self.default_device]
