"""What every protocol needs of the service: the ops, the lane, the devices and the limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.autodiff.default_mode import default_mode
from app.errors import NotFound, Overloaded, near, wrong
from app.execution.batching import Batches
from app.execution.lane import Lane
from app.execution.lifecycle import Lifecycle
from app.telemetry.counters import Counters
from ops import Mode, Op, Registry

Count: TypeAlias = Callable[[str, str], Counters]
"""Gives the counters of an op and an operation."""


# A kernel cannot be interrupted; one that is this long past its deadline is stuck for all we know.
STUCK_S = 5.0


@dataclass(frozen=True)
class Engine:
    """The service behind its routes.

    ``deadline_s`` is the longest that a request may take, ``checks_s`` a stream of checks; ``check_work`` is how many
    numbers one numeric derivative may ask an op for. ``counters`` returns the counters of an operation on an op.
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

    def need_ready(self) -> None:
        """Raise ``Overloaded`` while requests are not welcome: the service drains, or is stuck in a computation."""
        if self.lifecycle.draining:
            raise Overloaded("draining: the service is about to stop")
        if (late := self.lane.overrun()) is not None and late.seconds > STUCK_S:
            raise Overloaded(f"stuck: op {late.owner} is {late.seconds:.0f} s past its deadline", retry_after_s=5)

    def op(self, name: str) -> Op:
        """Return the op, or raise ``NotFound`` with near names, or with why it is unavailable."""
        found = self.registry.ops.get(name)
        if found is None:
            for broken in self.registry.unavailable:
                if broken.name == name:
                    raise NotFound(f"op {name} is unavailable: {broken.reason}")
            raise NotFound(f"unknown op {name!r}; expected {near(name, self.registry.ops)}")
        return found

    def default_mode(self, op: Op, dtype: str | None, device: str | None) -> Mode:
        """Return the mode of requests that name none, for a dtype (``None``: the op's first) and a device."""
        return default_mode(op, dtype or op.dtypes[0], device or self.default_device)

    def device(self, name: str | None) -> str:
        """Return TensorFlow's name of a device, or raise ``Unprocessable``."""
        if name is not None and name not in self.devices:
            expected = f"one of {', '.join(self.devices)}"
            raise wrong(("device",), "unknown device", expected=expected, got=name)
        return self.devices[name or self.default_device]
