"""Room for traces: which ones of a cache are dropped for a new one."""

from collections import Counter
from collections.abc import Callable, Mapping

from app.runtime import trace_entry
from app.runtime.trace_entry import Entry, TraceKey, XlaSession, traced

# A trace of some twenty kernels takes 0.25 MB, and 0.75 MB if XLA compiles it.
TRACES_KEPT = 2048
# The most sessions in which XLA compiles, each for ``trace_entry.MEMBERS`` traces.
SESSIONS_KEPT = 32
# A node takes 12 to 20 kB, and 60 kB if XLA compiles it. All traces together have at most so many, or one is alone.
NODES_KEPT = 1 << 16


class TraceRoom:
    """The room for the traces of a cache, with at most ``most_sessions``; ``displaced`` counts those that it dropped.

    Its caller holds the lock of the cache.
    """

    def __init__(self, entries: dict[TraceKey, Entry]) -> None:
        """Drop traces from ``entries``."""
        self.most_sessions, self.displaced = SESSIONS_KEPT, 0
        self._entries = entries

    def make_for(self, new: Entry) -> None:
        """Drop the traces whose programs are gone, and others until ``new`` has room."""
        for key in [key for key in self._entries if key[0].op() is None]:
            del self._entries[key]
        while len(others := self._others(new)) >= TRACES_KEPT:
            self._displace(_oldest_of_largest(others, lambda entry: 1), new)

    def drop_large(self, new: Entry) -> None:
        """Drop the least recently used traces of the owners with the most nodes, until ``new`` has room."""
        while others := {key: entry for key, entry in self._others(new).items() if entry.nodes}:
            if sum(entry.nodes for entry in others.values()) + new.nodes <= NODES_KEPT:
                break
            self._displace(_oldest_of_largest(others, lambda entry: entry.nodes), new)

    def session_for(self, new: Entry) -> XlaSession:
        """Return a session with room, of the owner of ``new``; a new one takes the place of one of who has the most.

        The permanent traces of all owners share sessions, which nothing displaces.
        """
        if new.session is None:
            shared = (each for each in self._permanent if not each.is_full)
            found = next(shared, None) if new.is_permanent else self._session_of(new)
            new.session = found or XlaSession(is_whole=new.is_compiled)
            new.session.members += 1
        return new.session

    @property
    def most_permanent(self) -> int:
        """The most permanent traces: those of half of the sessions."""
        return trace_entry.MEMBERS * max(1, self.most_sessions // 2)

    @property
    def _permanent(self) -> set[XlaSession]:
        return {each.session for each in self._entries.values() if each.is_permanent and each.session is not None}

    def _session_of(self, new: Entry) -> XlaSession | None:
        """Return a session of the owner with room; if there is none, make room for a new one."""
        last: dict[XlaSession, TraceKey] = {}
        for key, entry in self._others(new).items():
            if (session := entry.session) is not None:
                if entry.owner == new.owner and session.is_whole == new.is_compiled and not session.is_full:
                    return session
                if session not in last or entry.used > self._entries[last[session]].used:
                    last[session] = key
        while len(last) >= max(1, self.most_sessions - len(self._permanent)):
            key = _oldest_of_largest({key: self._entries[key] for key in last.values()}, lambda entry: 1)
            last = {session: other for session, other in last.items() if other != key}
            self._displace(key, new)
        return None

    def _others(self, new: Entry) -> dict[TraceKey, Entry]:
        """Return what may be dropped for a new trace."""
        return {key: entry for key, entry in self._entries.items() if entry is not new and not entry.is_permanent}

    def _displace(self, key: TraceKey, new: Entry) -> None:
        """Drop a trace, and all of its session but ``new``."""
        session = self._entries[key].session
        for other, entry in [*self._entries.items()]:
            if other == key or (session is not None and entry.session is session and entry is not new):
                del self._entries[other]
                traced(other).pop(other, None)
                self.displaced += 1


def _oldest_of_largest(entries: Mapping[TraceKey, Entry], size: Callable[[Entry], int]) -> TraceKey:
    """Return the least recently used trace of the owner whose traces have the largest together."""
    sizes = Counter[str]()
    for entry in entries.values():
        sizes[entry.owner] += size(entry)
    [(owner, _)] = sizes.most_common(1)
    return min((key for key, entry in entries.items() if entry.owner == owner), key=lambda key: entries[key].used)
