"""The cache of traces in this process, and their budget.

A program is traced once per mode, dtypes and device, for all shapes (with XLA, once per shape). The trace is kept for
the life of the process, because TensorFlow never frees its memory.
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

# A trace permanently takes about 0.25 MB; one that XLA compiles takes 0.5 to 2 MB.
TRACE_BUDGET = 2048
XLA_BUDGET = 640
# The share of each budget that one op may spend, so that the callers of one op cannot exhaust it.
SHARE = 0.5


class BudgetSpent(Exception):
    """The budget does not allow another trace."""


class Traces:
    """Traces by key, and their budgets.

    ``kept`` has the traces that can be called. A failed trace leaks memory too, so its error is kept and counted.
    ``spent`` grows with each trace that leaves its op without XLA compilations, so cached default modes are outdated.
    """

    def __init__(self) -> None:
        """Create an empty cache."""
        self.kept: dict[Hashable, Any] = {}
        self.made: Counter[str] = Counter()
        self.compiled: Counter[str] = Counter()
        self.spent = 0
        self._futures: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()

    def make(self, key: Hashable, owner: str, trace: Callable[[], Any], *, is_compiled: bool) -> Any:
        """Return the result of ``trace()`` for this key, which is called once; later calls return the same result.

        ``owner`` is the op whose share of the budget pays. Raises ``BudgetSpent``, and whatever ``trace()`` raised.
        """
        with self._lock:
            future = self._futures.get(key)
            is_first = future is None
            if future is None:
                self._spend(owner, is_compiled=is_compiled)
                future = self._futures[key] = Future()
        if is_first:
            try:
                self.kept[key] = result = trace()
                future.set_result(result)
            except BaseException as error:  # noqa: BLE001 - the op author's code may raise anything
                # The traceback would keep the tensors of the first request alive.
                future.set_exception(error.with_traceback(None))
        return future.result()

    def may_compile(self, owner: str) -> bool:
        """Report whether the budgets allow another XLA compilation for an op."""
        return not (_is_spent(self.compiled, XLA_BUDGET, owner) or _is_spent(self.made, TRACE_BUDGET, owner))

    def _spend(self, owner: str, *, is_compiled: bool) -> None:
        """Count a trace; raise ``BudgetSpent`` if the whole budget or the op's share of it is spent."""
        if _is_spent(self.made, TRACE_BUDGET, owner):
            raise BudgetSpent(f"op {owner} has no traces left in this process")
        if is_compiled and _is_spent(self.compiled, XLA_BUDGET, owner):
            raise BudgetSpent(f"op {owner} has no XLA compilations left in this process")
        could_compile = self.may_compile(owner)
        self.compiled[owner] += is_compiled
        self.made[owner] += 1
        if could_compile and not self.may_compile(owner):
            self.spent += 1


TRACES = Traces()
"""The traces of this process."""


def trace_counts() -> tuple[int, int]:
    """Return how many traces this process has made, and how many of them XLA compiled."""
    return TRACES.made.total(), TRACES.compiled.total()


def _is_spent(spent: Counter[str], budget: int, owner: str) -> bool:
    return spent[owner] >= budget * SHARE or spent.total() >= budget
