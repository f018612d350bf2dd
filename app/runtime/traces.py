"""The traces of this process, and the budget for them.

A trace is made once for a program, dtypes and device, whatever the shapes (with XLA: once a shape), and kept for the
life of the process: TensorFlow does not give its memory back.
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

# A trace keeps about 0.25 MB for ever, one that XLA compiles 0.5 to 2 MB.
TRACE_BUDGET = 2048
XLA_BUDGET = 640
# The part of it that one op may spend, so that the callers of one op do not spend all of it.
SHARE = 0.5


class BudgetSpent(Exception):
    """No further trace may be made."""


class Traces:
    """Traces by key, and their budgets.

    ``kept`` has those that can be called. A trace that failed is kept as its error: it leaks as well. ``spent`` counts
    how often a budget was used up, an op's share or all of it.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.kept: dict[Hashable, Any] = {}
        self.made: Counter[str] = Counter()
        self.compiled: Counter[str] = Counter()
        self.spent = 0
        self._futures: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()

    def make(self, key: Hashable, owner: str, trace: Callable[[], Any], *, is_compiled: bool) -> Any:
        """Return what ``trace()`` returned for this key, now or before: it is called once.

        ``owner`` is the op whose share of the budget pays. Raises ``BudgetSpent``, and what ``trace()`` raised.
        """
        with self._lock:
            future = self._futures.get(key)
            is_first = future is None
            if future is None:
                self._spend(owner, is_compiled=is_compiled)
                future = self._futures[key] = Future()
        if is_first:
            try:
                self.kept[key] = made = trace()
                future.set_result(made)
            except BaseException as error:  # noqa: BLE001 - an author's code runs here, and may raise anything
                # The traceback would keep the tensors of the request that the trace was made for.
                future.set_exception(error.with_traceback(None))
        return future.result()

    def may_compile(self, owner: str) -> bool:
        """Return whether XLA may compile once more for an op."""
        return not (_is_spent(self.compiled, XLA_BUDGET, owner) or _is_spent(self.made, TRACE_BUDGET, owner))

    def _spend(self, owner: str, *, is_compiled: bool) -> None:
        """Count a trace, or refuse it: neither all ops together nor one of them may have more than their share."""
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
    """Return how many traces this process has made, and how many of them XLA has compiled."""
    return TRACES.made.total(), TRACES.compiled.total()


def _is_spent(spent: Counter[str], budget: int, owner: str) -> bool:
    return spent[owner] >= budget * SHARE or spent.total() >= budget
