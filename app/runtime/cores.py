"""How many threads TensorFlow computes with: what the process may use of the machine, divided among the workers.

TensorFlow itself starts a thread for each core that the process may run on, whatever share of their time it is allowed,
and however many processes do the same.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# One for each slot of the lane: kernels are begun by these, and one that is at work on a large tensor begins no other.
SLOTS = 2


def share_cores(workers: int) -> None:
    """Take one of ``workers`` equal parts of the cores, and leave TensorFlow as it is where that is all of them.

    To be called before TensorFlow computes anything.
    """
    default = len(os.sched_getaffinity(0))
    part = max(1, usable_cores() // workers)
    if part < default:
        tf.config.threading.set_intra_op_parallelism_threads(part)
    if (kernels := max(SLOTS, part)) != default:
        tf.config.threading.set_inter_op_parallelism_threads(kernels)


def usable_cores(cgroups: Path = CGROUPS, own: Path = OWN) -> int:
    """Return how many cores the process may keep busy: those it may run on, at most its control groups' quota."""
    return max(1, min([len(os.sched_getaffinity(0)), *map(math.ceil, _quotas(cgroups, own))]))


def _quotas(cgroups: Path, own: Path) -> Iterator[float]:
    """Yield the quota, in cores, of each control group that the process is in.

    A container often sees its own group as the root of them all, but under the path that it has outside.
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
    """Yield the quota of a group, if it has one: ``cpu.max`` has both numbers in version 2, version 1 a file each."""
    if (both := group / "cpu.max").exists():
        quota, period = both.read_text().split()
    elif (first := group / "cpu.cfs_quota_us").exists():
        quota, period = first.read_text().strip(), (group / "cpu.cfs_period_us").read_text()
    else:
        return
    if quota not in ("max", "-1"):
        yield int(quota) / int(period)
