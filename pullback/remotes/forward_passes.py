"""The forward passes that the service keeps for derivatives to come, where they are slow."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.dtypes import Array
from pullback.linearization import Linearization
from pullback.remotes.points import Key, key

MOST = 32
"""How many of a function are kept that no derivative has used yet: those of the layers of one forward pass."""
CLOSE_S = 2.0


class Attempts:
    """When to repeat an attempt that has failed: after 1, 2, 4 and more calls; at each call once it has succeeded."""

    def __init__(self) -> None:
        """Make the first attempt at the first call."""
        self._pause = self._left = 0

    def is_due(self) -> bool:
        """Report whether to try at this call. Threads may count a call twice, which only moves the next attempt."""
        self._left -= 1
        return self._left < 0

    def failed(self) -> None:
        """Double the pause."""
        self._pause = self._left = min(2 * self._pause or 1, 1024)

    def succeeded(self) -> None:
        """End the pause."""
        self._pause = self._left = 0


@dataclass(eq=False)
class _Kept:
    """A forward pass, and whether a derivative has used it."""

    at: Linearization
    is_used: bool = False

    def free(self) -> None:
        self.at.__exit__(None, None, None)


class ForwardPasses:
    """The forward passes of a function that the service keeps, by point. Threads may share them.

    A new one takes the place of those that a derivative has used: each goes on to serve others until then.
    """

    def __init__(self) -> None:
        """Keep none, and suppose that they are slow."""
        self._kept = dict[Key, _Kept]()
        self._attempts = dict[int, Attempts]()
        self._process = os.getpid()

    def are_slow(self, inputs: Sequence[Array]) -> bool:
        """Report whether to ask the service to keep that of inputs as large as these.

        It keeps none that is cheap. After each such answer, twice as many calls ask for none.
        """
        return self._of_size(inputs).is_due()

    def outputs(self, inputs: Sequence[Array], at: Linearization) -> dict[str, Array]:
        """Return the outputs, and keep the forward pass if the service does; raises the errors of the client."""
        at.__enter__()
        if at.id is None:
            self._of_size(inputs).failed()
            return at.outputs
        self._of_size(inputs).succeeded()
        # Those of its parent are not for a child of a fork to free.
        if self._process != os.getpid():
            self._kept, self._process = {}, os.getpid()
        self._free([point for point, each in [*self._kept.items()] if each.is_used])
        self._free([*self._kept][: max(0, len(self._kept) - MOST + 1)])
        point = key(inputs)
        self._free([point])
        self._kept[point] = _Kept(at)
        return at.outputs

    def find(self, inputs: Sequence[Array]) -> Linearization | None:
        """Return that at a point, for a derivative there."""
        kept = self._kept.get(key(inputs)) if self._kept else None
        if kept is None:
            return None
        kept.is_used = True
        return kept.at

    def close(self) -> None:
        """Free all of them, unless the service does not answer."""
        end = time.monotonic() + CLOSE_S
        while self._kept and self._process == os.getpid() and time.monotonic() < end:
            self._free([*self._kept][:1])

    def _free(self, points: Sequence[Key]) -> None:
        for point in points:
            kept = self._kept.pop(point, None)
            if kept is not None:
                kept.free()

    def _of_size(self, inputs: Sequence[Array]) -> Attempts:
        return self._attempts.setdefault(sum(x.size for x in inputs).bit_length(), Attempts())
