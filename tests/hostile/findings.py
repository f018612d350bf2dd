"""What a phase counts, and its findings; the bytes of each finding go to a file."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "hostile"
# Further findings of one kind are counted, and neither printed nor written.
SHOWN = 3
# The longest request that is written in whole.
WRITTEN = 1 << 20

WRONG, CRASH, FAULT, TRACEBACK, LOST, STALL, GROWTH, STATUS = FAILURES = (
    "wrong number",
    "crash",
    "unexpected 500",
    "traceback",
    "lost request",
    "stall",
    "growth",
    "unexpected status",
)


@dataclass
class Findings:
    """The counts of one phase. Threads share it."""

    phase: str
    requests: int = 0
    compared: int = 0
    refused: int = 0
    op_errors: int = 0
    statuses: Counter[int] = field(default_factory=Counter[int])
    failures: Counter[str] = field(default_factory=Counter[str])
    lines: list[str] = field(default_factory=list[str])
    slowest_live_s: float = 0.0
    rss_mb: tuple[float, float] = (0.0, 0.0)
    files: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sent(self, count: int = 1) -> None:
        """Count requests."""
        with self._lock:
            self.requests += count

    def answered(self, status: int) -> None:
        """Count an answer."""
        with self._lock:
            self.statuses[status] += 1

    def matched(self) -> None:
        """Count a good answer that was compared."""
        with self._lock:
            self.compared += 1

    def turned_away(self) -> None:
        """Count a good request that was refused because the service is busy."""
        with self._lock:
            self.refused += 1

    def op_failed(self) -> None:
        """Count a 500 that is the op's own failure."""
        with self._lock:
            self.op_errors += 1

    def live(self, seconds: float) -> None:
        """Record how long ``GET /health/live`` took."""
        with self._lock:
            self.slowest_live_s = max(self.slowest_live_s, seconds)

    def fail(self, kind: str, text: str, pieces: Sequence[bytes] = ()) -> None:
        """Count a finding; write the first of its kind with the bytes that were sent."""
        with self._lock:
            self.failures[kind] += 1
            if (number := self.failures[kind]) > SHOWN:
                return
            name = f"{self.phase}-{kind}-{number}".replace(" ", "-")
            self.lines.append(f"{self.phase}: {kind}: {text.splitlines()[0]}" + (f" [{name}.bytes]" if pieces else ""))
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{name}.txt").write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        if pieces:
            (FOLDER / f"{name}.bytes").write_bytes(b"".join(pieces)[:WRITTEN])
