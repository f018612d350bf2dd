"""The number of TensorFlow threads: the cores available to the process, divided among the workers.

By default TensorFlow starts a thread for each core that the process may run on, regardless of CPU quotas, of limits of
threads and of other workers.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from app.runtime.threads import CGROUPS, OWN, cores_within, groups_of, sessions_within, usable_threads
from app.runtime.trace_room import SESSIONS_KEPT
from app.runtime.traces import TRACES

# One inter-op thread each for short and for long work: a thread that runs a kernel on a large tensor cannot start
# another kernel.
SLOTS = 2


def share_cores(workers: int, processes: int) -> None:
    """Limit TensorFlow to one of ``workers`` equal parts of the cores; keep its default if that is all of them.

    Limit its threads to one of ``processes`` equal parts of those that the system allows. Call this before TensorFlow
    computes anything.
    """
    default = len(os.sched_getaffinity(0))
    part = max(1, usable_cores() // workers)
    if (threads := usable_threads()) is not None:
        part = cores_within(threads // processes, part)
        TRACES.room.most_sessions = sessions_within(threads // processes, part, SESSIONS_KEPT)
    if part < default:
        tf.config.threading.set_intra_op_parallelism_threads(part)
    if (kernels := max(SLOTS, part)) != default:
        tf.config.threading.set_inter_op_parallelism_threads(kernels)


def usable_cores(cgroups: Path = CGROUPS, own: Path = OWN) -> int:
    """Return how many cores the process may use: its CPU affinity, limited by the quotas of its control groups."""
    quotas = [quota for group in groups_of("cpu", cgroups, own) for quota in _quota(group)]
    return max(1, min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)]))


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
