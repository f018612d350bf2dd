"""The service under attack: a process on loopback, its workers, its memory, its open files and its log."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import IO, Self

from tests.conftest import Service
from tests.hostile.findings import CRASH, FOLDER, GROWTH, TRACEBACK, Findings

# Small enough that an attack fills the queue and reaches the deadline within seconds.
SETTINGS = {"QUEUE": "64", "DEADLINE_S": "20", "DRAIN_S": "1", "GRACE_S": "10", "WARM_UP": "0"}
# Draining, the grace time, and patience.
STOP_S = 40.0
# What a phase may leave behind in each process: memory that the allocator keeps, traces, and pooled descriptors.
RSS_MB, RSS_MB_OF_TRACE, FILES = 192.0, 2.5, 16
# A record of the log is a line that begins with a time, and the lines after it. Ops that fail have warnings of theirs.
LOG_RECORD = re.compile(r"^(?=\d{4}-\d\d-\d\dT)", re.MULTILINE)
OP_FAILED = re.compile(r"\S+ WARNING op ")


class Target:
    """A service with some settings; as a context manager it is ended at the end, whatever it does."""

    def __init__(self, name: str, stderr: IO[bytes] | None = None, **settings: str) -> None:
        """Start it without waiting; its log is in ``build/hostile`` unless ``stderr`` gets it."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._has_log = stderr is None
        self._log = (FOLDER / f"{name}.log").open("w+b") if stderr is None else stderr
        self._read = 0
        self.service = Service.launched(self._log, **SETTINGS | settings)
        self._workers = set[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.service.close()
        self._log.close()

    def wait_until_ready(self) -> Self:
        """Wait until it accepts requests."""
        self.service.wait_until_ready()
        self._workers = set(self.service.workers())
        return self

    @property
    def port(self) -> int:
        """The port."""
        return self.service.port

    @property
    def pid(self) -> int:
        """The process id of the server, or of the supervisor of several."""
        return self.service.process.pid

    def workers(self) -> list[int]:
        """Return the process ids of the workers, none if the server is a single process."""
        return sorted(self.service.workers())

    def pids(self) -> list[int]:
        """Return the process ids of all its processes."""
        return [self.pid, *self.workers()]

    def rss_mb(self) -> float:
        """Return the resident memory of all its processes, in MiB; 0 if they have ended."""
        return sum(_rss_kb(pid) for pid in self.pids()) / 1024

    def files(self) -> int:
        """Return the number of open descriptors of all its processes."""
        return sum(_files(pid) for pid in self.pids())

    def expect_exits(self) -> None:
        """Take the workers there are as the right ones, after a planned exit."""
        self._workers = set(self.service.workers())

    def is_alive(self) -> bool:
        """Return whether the server, or the supervisor, runs."""
        return self.service.process.poll() is None

    def wait_until_stopped(self, findings: Findings) -> None:
        """Wait for the end that a signal asked for; record another exit status, or kill what does not stop."""
        try:
            status = self.service.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            findings.fail(CRASH, f"it has not stopped {STOP_S:g} s after SIGTERM")
            for pid in reversed(self.pids()):
                os.kill(pid, signal.SIGKILL)
            return
        if status:
            findings.fail(CRASH, f"SIGTERM ended it with status {status}: {self.last_lines()}")

    def find_crashes(self, findings: Findings) -> bool:
        """Record an exit that was not planned; return whether there was one."""
        gone = self._workers - set(self.service.workers())
        if not self.is_alive():
            findings.fail(
                CRASH, f"the service has ended with status {self.service.process.poll()}: {self.last_lines()}"
            )
        elif gone:
            findings.fail(CRASH, f"{len(gone)} workers have ended: {self.last_lines()}")
            self.expect_exits()
        return bool(gone) or not self.is_alive()

    def find_log_tracebacks(self, findings: Findings) -> None:
        """Record the tracebacks in the log since the last call."""
        for record in tracebacks(self._new_log()):
            findings.fail(TRACEBACK, f"in the log: {record.rstrip().splitlines()[-1]}\n{record}")

    def last_lines(self) -> str:
        """Return the end of the log."""
        return self.service.log()[-1000:] if self._has_log else "the log is not read"

    def _new_log(self) -> str:
        if not self._has_log:
            return ""
        descriptor = self._log.fileno()
        data = os.pread(descriptor, os.fstat(descriptor).st_size - self._read, self._read)
        self._read += len(data)
        return data.decode(errors="replace")


def tracebacks(log: str) -> list[str]:
    """Return the records of a log that have a traceback which is not an op's."""
    records = LOG_RECORD.split(log)
    return [record for record in records if "Traceback (most recent" in record and not OP_FAILED.match(record)]


def find_growth(findings: Findings, processes: int, traces: int) -> None:
    """Record growth of memory or open files past the bounds, with this many processes and new traces."""
    (rss_before, rss), (files_before, files) = findings.rss_mb, findings.files
    allowed = processes * RSS_MB + traces * RSS_MB_OF_TRACE
    if rss - rss_before > allowed:
        findings.fail(GROWTH, f"memory grew by {rss - rss_before:.0f} MiB, {allowed:.0f} MiB allowed ({traces} traces)")
    if files - files_before > FILES:
        findings.fail(GROWTH, f"{files - files_before} more open files, {FILES} allowed")


def _rss_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)


def _files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return 0
