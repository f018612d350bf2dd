"""What a process has read of a folder: the values that were used last."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")
# How long a use is noted in the file.
NOTED_S = 1.0


@dataclass(eq=False)
class _Kept(Generic[Value]):
    value: Value
    size: int
    noted: float


class Recent(Generic[Value]):
    """Values by the names of their files, of at most ``limit`` together, or one alone. Any thread may use it."""

    def __init__(self, use: Callable[[str], bool], limit: int) -> None:
        """Start empty. ``use`` notes the use of a file, and returns whether it is still there; it may block."""
        self._limit, self._lock = limit, threading.Lock()
        self._kept: OrderedDict[str, _Kept[Value]] = OrderedDict()
        self._uses = _Uses(use, self._drop)
        self.size = 0

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._kept)

    def known(self, name: str) -> Value | None:
        """Return a value that this process has, and note its use; it never blocks.

        If another process has removed the file, that becomes known within seconds.
        """
        with self._lock:
            kept, now = self._kept.get(name), time.monotonic()
            if kept is None:
                return None
            self._kept.move_to_end(name)
            if now - kept.noted > NOTED_S:
                kept.noted = now
                self._uses.note(name)
            return kept.value

    def has(self, name: str, value: Value) -> bool:
        """Return whether this process has this value, without using it."""
        kept = self._kept.get(name)
        return kept is not None and kept.value is value

    def keep(self, name: str, value: Value, size: int = 1) -> Value:
        """Keep a value; return that which another thread has kept meanwhile, if one has."""
        with self._lock:
            if name not in self._kept:
                self._kept[name] = _Kept(value, size, time.monotonic())
                self.size += size
            kept = self._kept[name]
            while self.size > self._limit and len(self._kept) > 1:
                self.size -= self._kept.popitem(last=False)[1].size
            return kept.value

    def _drop(self, name: str) -> None:
        with self._lock:
            kept = self._kept.pop(name, None)
            self.size -= 0 if kept is None else kept.size


class _Uses:
    """The uses of files, noted by a thread: a file system may take long, or never answer."""

    def __init__(self, use: Callable[[str], bool], gone: Callable[[str], None]) -> None:
        """Call ``gone`` with the name of a file that is no longer there."""
        self._use, self._gone = use, gone
        self._names, self._is_running = dict[str, None](), False
        self._lock = threading.Lock()

    def note(self, name: str) -> None:
        """Note a use, soon."""
        with self._lock:
            self._names[name] = None
            is_first, self._is_running = not self._is_running, True
        if is_first:
            threading.Thread(target=self._write, name="uses", daemon=True).start()

    def _write(self) -> None:
        """Note the uses that there are; the thread ends when none is left."""
        while True:
            with self._lock:
                if not self._names:
                    self._is_running = False
                    return
                name = next(iter(self._names))
                del self._names[name]
            if not self._use(name):
                self._gone(name)
