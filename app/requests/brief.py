"""Which requests may be read on the event loop: those like earlier ones, off the loop, that took no time.

To read a request may run an author's ``validate``, trace an op to choose its mode, and follow shapes through hundreds
of nodes of a graph. All of this depends on the op, and its time on the size of the request.
"""

import asyncio
import time

from app.autodiff.kept import Kept
from app.errors import Postponed
from app.runtime.traces import NotTraced
from ops import Op

# A read is brief if it takes no more CPU time, and no more time altogether: it may wait for the interpreter.
BRIEF_CPU_S, BRIEF_S = 1.5e-3, 2e-2


class NotBrief(Postponed):
    """This read may take long, and must not run on the event loop; ``op`` is its name."""

    def __init__(self, op: str) -> None:
        """Take the name of the op."""
        super().__init__(op)
        self.op = op


@Kept
def _are_brief(op: Op) -> dict[tuple[str, int], bool]:
    """Return whether reads were brief, by their operation and the binary order of magnitude of their size."""
    del op
    return {}


class Reading:
    """A block in which a request for an op is read whose body has ``size`` bytes.

    Raises ``NotBrief`` on the event loop, unless the last one of this kind was brief.
    """

    def __init__(self, op: Op, operation: str, size: int) -> None:
        """Take what determines how long reading takes."""
        self._op, self._are_brief, self._kind = op, _are_brief(op), (operation, size.bit_length())
        self._began = (0.0, 0.0)

    def __enter__(self) -> None:
        """Begin."""
        if not self._are_brief.get(self._kind) and _is_on_loop():
            raise NotBrief(self._op.owner)
        self._began = times()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Note whether the read was brief, if it ended."""
        if error is None:
            self._are_brief[self._kind] = is_brief(self._began)
        elif isinstance(error, NotTraced) and _is_on_loop():
            raise NotBrief(self._op.owner) from None


def times() -> tuple[float, float]:
    """Return the time and the CPU time of this thread, for ``is_brief``."""
    return time.perf_counter(), time.thread_time()


def is_brief(began: tuple[float, float]) -> bool:
    """Return whether what began at these ``times`` was brief."""
    took = time.perf_counter() - began[0]
    return took < BRIEF_CPU_S or (took < BRIEF_S and time.thread_time() - began[1] < BRIEF_CPU_S)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
