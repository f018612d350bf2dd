"""The number of TensorFlow threads: the cores available to the process, divided among the workers.

By default TensorFlow starts a thread for each core that the process may run on, regardless of CPU quotas and of other
workers.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# One inter-op thread each for short and for long work: a thread that runs a kernel on a large tensor cannot start
# another kernel.
SLOTS = 2


def share_cores(workers: int) -> None:
    """Limit TensorFlow to one of ``workers`` equal parts of the cores; keep its default if that is all of them.

    Call this before TensorFlow computes anything.
    """
    default = len(os.sched_getaffinity(0))
    part = max(1, usable_cores() // workers)
    if part < default:
        tf.config.threading.set_intra_op_parallelism_threads(part)
    if (kernels := max(SLOTS, part)) != default:
        tf.config.threading.set_inter_op_parallelism_threads(kernels)


def usable_cores(cgroups: Path = CGROUPS, own: Path = OWN) -> int:
    """Return how many cores the process may use: its CPU affinity, limited by the quotas of its control groups."""
    return max(1, min([len(os.sched_getaffinity(0)), *map(math.ceil, _quotas(cgroups, own))]))


def _quotas(cgroups: Path, own: Path) -> Iterator[float]:
    """Yield the quota, in cores, of each control group that the process is in.

    In a container, the process's own group is often mounted as the root, while its path is still the host's.
    """
    for line in own.read_text().splitlines() if own.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / controllers
        group = root / path.lstrip("/")
        for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(root))):
            yield from _quota(folder)


def _quota(group: Path) -> Iterator[float]:
    """Yield the quota of a group, if any: version 2 has ``cpu.max`` with both numbers, version 1 a file for each."""
    if (both := group / "cpu.max").exists():
        quota, period = both.read_text().split()
    elif (first := group / "cpu.cfs_quota_us").exists():
        quota, period = first.read_text().strip(), (group / "cpu.cfs_period_us").read_text()
    else:
        return
    if quota not in ("max", "-1"):
        yield int(quota) / int(period)
