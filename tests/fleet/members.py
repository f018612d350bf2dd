"""A fleet on loopback: three processes of the service behind HAProxy."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.conftest import ROOT, Service
from tests.fleet.balancer import UP, Balancer

NAMES = ("a", "b", "c")
PLUGINS = ROOT / "tests" / "http" / "plugins"
CRASHING = Path(__file__).with_name("crashing.py")
SETTINGS = {"DRAIN_S": "2", "GRACE_S": "20", "STRICT": "1"}


class Member:
    """A process of the service that keeps its address when it starts again."""

    def __init__(self, name: str, number: int, ops: Path, log: IO[bytes]) -> None:
        self.name, self._ops, self._log = name, ops, log
        # An address that no client's connection uses: the port stays free while the process is away.
        self.host, self.port = f"127.{64 + os.getpid() % 190}.{number}.1", 0
        self.service = self._start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def _start(self) -> Service:
        own = {"HOST": self.host, "PORT": str(self.port), "OPS_PATH": str(self._ops)}
        service = Service.forked(self._log, **SETTINGS, **own).wait_until_ready()
        self.port = service.port
        return service

    @property
    def lives(self) -> bool:
        return self.service.process.poll() is None

    def start(self) -> None:
        """Start it again, at the same address."""
        self.service.close()
        self.service = self._start()


class Fleet:
    """The processes by name, and the balancer before them."""

    def __init__(self, members: dict[str, Member], balancer: Balancer) -> None:
        self.members, self.balancer = members, balancer

    @property
    def port(self) -> int:
        return self.balancer.port


def plugin_ops(folder: Path) -> Path:
    """Copy into a folder the ops that fleets serve: three that sleep or compute, and one that crashes."""
    for page in (*(PLUGINS / f"{name}.py" for name in ("sleepy", "endless", "patient")), CRASHING):
        (folder / page.name).write_text(page.read_text())
    return folder


@contextmanager
def running(ops: Path, folder: Path) -> Iterator[Fleet]:
    """Run a fleet inside this block; HAProxy's configuration is in ``folder``."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile())
        members = {name: Member(name, number, ops, log) for number, name in enumerate(NAMES, 1)}
        for member in members.values():
            stack.callback(lambda member=member: member.service.close())
        addresses = {name: member.address for name, member in members.items()}
        balancer = stack.enter_context(Balancer(addresses, folder, log))
        balancer.wait_for(UP, *NAMES)
        yield Fleet(members, balancer)
