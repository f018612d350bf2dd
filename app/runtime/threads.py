"""How many threads this process may start: its part of those that the system allows the service.

Where the limit is reached, XLA ends the process. So TensorFlow gets no more threads than fit.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

# Threads of a process, most of which wait: of the service and of TensorFlow, more for each core, and for each session
# in which XLA compiles (measured with TensorFlow 2.21).
OF_PROCESS, OF_CORE, OF_SESSION = 64, 5, 10
LEAST = OF_PROCESS + OF_CORE + OF_SESSION
CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_threads(cgroups: Path = CGROUPS, own: Path = OWN) -> int | None:
    """Return how many threads the processes of the service may have together, ``None`` without a limit.

    Limits are those of the control groups (``pids.max``), and of the user unless it is root (``ulimit -u``).
    """
    return min(_limits(cgroups, own), default=None)


def _limits(cgroups: Path, own: Path) -> Iterator[int]:
    for group in groups_of("pids", cgroups, own):
        if (file := group / "pids.max").exists() and (limit := file.read_text().strip()) != "max":
            yield int(limit)
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.getuid():
        yield soft


def cores_within(threads: int, cores: int) -> int:
    """Return the most cores, at least one, for which a process has enough threads."""
    return max(1, min(cores, (threads - OF_PROCESS - OF_SESSION) // OF_CORE))


def sessions_within(threads: int, cores: int, most: int) -> int:
    """Return the most sessions, at least one, for which a process with these cores has enough threads."""
    return max(1, min(most, (threads - OF_PROCESS - OF_CORE * cores) // OF_SESSION))


def groups_of(controller: str, cgroups: Path = CGROUPS, own: Path = OWN) -> Iterator[Path]:
    """Yield the folder of each control group that limits the process, from its own upwards; some may be missing.

    In a container, the process's own group is often mounted as the root, while its path is still the host's.
    """
    for line in own.read_text().splitlines() if own.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = cgroups / controllers
        group = root / path.lstrip("/")
        yield from (group, *(parent for parent in group.parents if parent.is_relative_to(root)))
