"""The control groups of this process, which limit what it may use."""

from collections.abc import Iterator
from pathlib import Path

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


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
