"""Accounts: what the requests with each key have used. The metrics by key and the limits of a key read them."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

# The most names of keys among the labels of metrics, and the label of all further ones, which is the name of no key.
NAMED, OTHERS = 200, "*"
# The most accounts; those without a request in progress make room.
KEPT = 2000


@dataclass(eq=False, slots=True)
class Usage:
    """What requests have used since the start: the answers by status, the refusals by reason, and seconds.

    Seconds are added on any thread, without a lock: see ``app.telemetry.counters``.
    """

    answers: Counter[int] = field(default_factory=Counter[int])
    refused: Counter[str] = field(default_factory=Counter[str])
    queue_s: float = 0.0
    compute_s: float = 0.0


@dataclass(eq=False, slots=True)
class Account:
    """The account of the key with a name: the usage with its label, its requests in progress, and what it owes.

    ``owed_s`` are seconds of computing that the limit of the key does not count yet.
    """

    name: str
    usage: Usage
    in_flight: int = 0
    owed_s: float = 0.0

    def add(self, queue_s: float, compute_s: float) -> None:
        """Count seconds of a request."""
        self.usage.queue_s += queue_s
        self.usage.compute_s += compute_s
        self.owed_s += compute_s

    def owed(self) -> float:
        """Return the seconds of computing since the last call."""
        owed_s, self.owed_s = self.owed_s, 0.0
        return owed_s


class Owner(NamedTuple):
    """Whose share of a queue work takes: that of the requests for an op, with one key where requests have keys."""

    op: str
    key: str = ""

    def __str__(self) -> str:
        """Return the op, and the name of the key if there is one, for messages."""
        return f"{self.op} (key {self.key})" if self.key else self.op


class Accounts:
    """The accounts of a process. Requests without a valid key share ``keyless``."""

    def __init__(self) -> None:
        """Start without keys."""
        self.keyless = Account("", Usage())
        self.usages = {"": self.keyless.usage}
        self._accounts = dict[str, Account]()

    def of(self, name: str) -> Account:
        """Return the account of a key; those of the first ``NAMED`` keys have labels of their own."""
        if (account := self._accounts.get(name)) is None:
            label = name if name in self.usages or len(self.usages) <= NAMED else OTHERS
            account = Account(name, self.usages.setdefault(label, Usage()))
            if len(self._accounts) >= KEPT:
                idle = [each for each in self._accounts.values() if not each.in_flight and not each.owed_s]
                for each in idle[: KEPT // 2]:
                    del self._accounts[each.name]
            self._accounts[name] = account
        return account


NOT_CHARGED = Account("", Usage())
"""Takes the counts of work that no request caused; nothing reads them."""


Share: TypeAlias = tuple[Account, int]
"""The part of an evaluation in a call: its account, and its units of the call."""
