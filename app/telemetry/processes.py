"""The workers of a service, as processes: their numbers, which of them live, and what they use.

Each worker has the first free number, so that a worker that replaces another continues its counts, and the number of
files stays bounded.
"""

import errno
import fcntl
import itertools
import os
import struct
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from prometheus_client import Metric, ProcessCollector
from prometheus_client.multiprocess import MultiProcessCollector

# struct flock of <fcntl.h>. The locks are of an open file: to close another copy of the file does not release them.
FLOCK = "hhqqi"
_WHOLE = partial(struct.pack, FLOCK)

_own = ProcessCollector(registry=None)


def worker_number(folder: Path) -> int:
    """Return the first free number among the workers, locked until this process ends."""
    for number in itertools.count():
        descriptor = os.open(_lock_of(folder, number), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        else:
            return number
    raise AssertionError("the counter is infinite")


def lives(folder: Path, number: str) -> bool:
    """Return whether the worker with a number lives, without taking its lock."""
    try:
        descriptor = os.open(_lock_of(folder, number), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return struct.unpack_from(FLOCK, found)[0] != fcntl.F_UNLCK
    finally:
        os.close(descriptor)


class LiveWorkers(MultiProcessCollector):
    """The numbers of all workers together: the counts of those that have ended too, but not their gauges."""

    def __init__(self, registry: Any, folder: Path) -> None:
        """Register the collector of a folder."""
        self._folder = folder
        super().__init__(registry, str(folder))  # pyright: ignore[reportUnknownMemberType] - untyped

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        gauges = list(self._folder.glob("gauge_*.db"))
        ended = {path for path in gauges if not lives(self._folder, path.stem.rpartition("_")[2])}
        current = [str(path) for path in self._folder.glob("*.db") if path not in ended]
        merged = self.merge(current)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
        return cast(Iterable[Metric], merged)


def usage() -> Mapping[str, float]:
    """Return what this process uses, by the names of Prometheus' standard metrics of a process."""
    return {sample.name: sample.value for metric in _own.collect() for sample in metric.samples}


def _lock_of(folder: Path, number: int | str) -> Path:
    return folder / f"{number}.lock"
