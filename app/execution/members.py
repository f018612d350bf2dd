"""Members of batches: what evaluations must say of themselves so that several may share a TensorFlow call."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from app.autodiff.packing import Packing

# How much later than that of its first member the deadlines of the others of a call may be.
PATIENCE_S = 1.0


class Member(Protocol):
    """An evaluation that takes ``units`` of the packing of its call.

    ``may_wait`` says whether it may wait for a thread. It holds a place of its ``owner`` there, and its call ends by
    ``latest``, a time of ``time.monotonic``. When its client leaves, ``is_done`` is set, and then ``on_release`` is
    called.
    """

    on_release: Callable[[], None] | None

    @property
    def units(self) -> int: ...  # noqa: D102
    @property
    def owner(self) -> str: ...  # noqa: D102
    @property
    def latest(self) -> float: ...  # noqa: D102
    @property
    def may_wait(self) -> bool: ...  # noqa: D102
    @property
    def is_done(self) -> bool: ...  # noqa: D102


AMember = TypeVar("AMember", bound=Member)


class Group(Protocol[AMember]):
    """What members that may share a call have in common; equal groups are one."""

    @property
    def packing(self) -> Packing: ...  # noqa: D102

    def call(self, members: Sequence[AMember]) -> "Call[AMember]":
        """Return the call of these members."""
        ...

    def fail(self, member: AMember, error: BaseException) -> None:
        """Give a member, which is not done, an error in place of its result, on the event loop."""
        ...


@dataclass(eq=False)
class Call(ABC, Generic[AMember]):
    """One TensorFlow call for members of a group; it took ``seconds``, 0 if that says nothing about other calls."""

    group: Group[AMember]
    members: Sequence[AMember]
    seconds: float = field(default=0.0, init=False)

    @property
    def units(self) -> int:
        """The units of all members."""
        return sum([member.units for member in self.members])

    @abstractmethod
    def run(self) -> None:
        """Compute, on any thread; raises ``NotTraced``, and what fails all members."""

    @abstractmethod
    def finish(self) -> None:
        """Give the members their results, on the event loop; do nothing for one that is done."""
