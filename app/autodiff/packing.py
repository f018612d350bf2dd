"""Packing: how the leaves of several evaluations are joined for one call of a program, and its results divided.

A call consists of *units*: numbers of an elementwise op (``padded_numbers``), rows of an op whose rows are independent
(``padded_rows``), or a whole evaluation, which shares its call with no other. Calls have one of a few lengths in units,
and are padded to it, because the last bit of a result may depend on the length of the arrays. So equal evaluations have
equal bits, whether or not they share a call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from app.autodiff.programs import Program
from app.runtime import modes
from app.runtime.modes import Key, KeyedArrays
from app.runtime.owned_cache import OwnedCache
from ops import Array, Mode

Shape: TypeAlias = tuple[int, ...]
# How many packings of each kind are kept. One takes about a kilobyte.
KEPT = 8192


class NotPackable(Exception):
    """The op does not do what its packing needs: a result has another shape, or rows depend on each other.

    Run each evaluation alone: it reports the fault, or has the right results.
    """


class Packing(Protocol):
    """How evaluations of one program, in one mode and on one device, share a call; equal ones are one object.

    ``units`` has the shape of one unit of each leaf, ``None`` for a leaf that is the same for all evaluations of a
    call. Where a call may have more than one unit, its leaves have an axis of them in front. ``runs_inline`` says of
    calls of some lengths whether they may run on the event loop.
    """

    program: Program
    mode: Mode
    device: str
    units: tuple[Shape | None, ...]
    runs_inline: dict[int, bool]

    @property
    def why_not(self) -> str | None:
        """Why evaluations share no call after all, "" if they do, ``None`` if that is not known yet."""
        ...

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of calls, ascending."""
        ...

    @property
    def most(self) -> int:
        """The most units of a shared call."""
        ...

    def length_for(self, count: int) -> int:
        """Return the length of a call of so many units: calls of equal lengths take equally long."""
        ...

    def pad(self, leaf: int, tensor: Array, count: int) -> None:
        """Fill what follows the first ``count`` units of a leaf in a call with a unit in the op's domain."""
        ...

    def run(self, members: Sequence[Sequence[Array]]) -> list[KeyedArrays]:
        """Run the program in one call for the leaves of each member, and return the results of each.

        Raises ``NotPackable``, ``NotTraced`` and whatever ``modes.run`` raises.
        """
        ...

    def run_call(self, leaves: Sequence[Array], count: int) -> KeyedArrays:
        """Return the results of the first ``count`` units of a call with these leaves; raises as ``run``."""
        ...


@dataclass(eq=False)
class Whole:
    """The packing of an evaluation that shares its call with no other; its leaves are those of the call.

    ``shapes`` are those of the results, once they are known to be right.
    """

    program: Program
    mode: Mode
    device: str
    units: tuple[Shape | None, ...]
    shapes: dict[Key, Any] | None = None
    runs_inline: dict[int, bool] = field(default_factory=dict[int, bool])
    why_not = ""
    lengths = (1,)
    most = 1

    def length_for(self, count: int) -> int:
        """Return the length, which is 1 like the count."""
        return count

    def pad(self, leaf: int, tensor: Array, count: int) -> None:
        """Do nothing: the evaluation fills its call."""

    def run(self, members: Sequence[Sequence[Array]]) -> list[KeyedArrays]:
        """Run the program for each member."""
        return modes.run_each(self.program, self.mode, members, self.device)

    def run_call(self, leaves: Sequence[Array], count: int) -> KeyedArrays:
        """Return the results; raise ``NotPackable`` if their shapes are not those that are known to be right."""
        del count
        results = modes.run(self.program, self.mode, leaves, self.device)
        if _shapes(results) != self.shapes:
            raise NotPackable
        return {key: value for key, value in results.items() if not isinstance(key[0], str)}

    def note(self, results: KeyedArrays) -> None:
        """Keep the shapes of results that are known to be right."""
        if self.shapes is None:
            self.shapes = _shapes(results)


_wholes = OwnedCache[tuple[Mode, str, tuple[Shape | None, ...]], Whole](KEPT)


def whole(program: Program, mode: Mode, device: str, units: tuple[Shape | None, ...]) -> Whole:
    """Return the packing of evaluations whose leaves have these shapes."""
    key = mode, device, units
    return _wholes.get(program, key) or _wholes.keep(program, key, Whole(program, *key))


def _shapes(results: KeyedArrays) -> dict[Key, Any]:
    """Return the shape of each result, ``None`` for missing ones; results that are shapes stand for themselves."""
    return {
        key: None if value is None else tuple(value.tolist()) if isinstance(key[0], str) else value.shape
        for key, value in results.items()
    }
