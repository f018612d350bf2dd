"""A fleet on loopback: three processes behind HAProxy, and a quiet process, whose answers are the measure."""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

from tests.conftest import ROOT, Service
from tests.fleet.balancer import UP, Balancer
from tests.fleet.cases import requests
from tests.fleet.load import Case, recorded
from tests.patience import PATIENCE_S, PAUSE_S

NAMES = ("a", "b", "c")
FIGURES = ROOT / "build" / "fleet" / "figures.json"
PLUGINS = ROOT / "tests" / "http" / "plugins"
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

    def start(self) -> None:
        """Start it again, at the same address."""
        self.service.close()
        self.service = self._start()

    def ready(self) -> bool:
        return httpx.get(f"http://{self.address}/health/ready", timeout=PATIENCE_S).status_code == 200

    def wait_until_not_ready(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while self.ready():
            assert time.monotonic() < until
            time.sleep(PAUSE_S)


class Fleet:
    """The processes by name, and the balancer before them."""

    def __init__(self, members: dict[str, Member], balancer: Balancer) -> None:
        self.members, self.balancer = members, balancer

    @property
    def port(self) -> int:
        return self.balancer.port


@pytest.fixture(scope="session")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an op that sleeps, and one that computes."""
    folder = tmp_path_factory.mktemp("ops")
    for name in ("sleepy.py", "endless.py"):
        (folder / name).write_text((PLUGINS / name).read_text())
    return folder


@pytest.fixture(scope="session")
def fleet(ops: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile())
        members = {name: Member(name, number, ops, log) for number, name in enumerate(NAMES, 1)}
        for member in members.values():
            stack.callback(lambda member=member: member.service.close())
        addresses = {name: member.address for name, member in members.items()}
        balancer = stack.enter_context(Balancer(addresses, tmp_path_factory.mktemp("haproxy"), log))
        balancer.wait_for(UP, *NAMES)
        yield Fleet(members, balancer)


@pytest.fixture(scope="session")
def cases(ops: Path) -> list[Case]:
    """Requests with the answers of one quiet process."""
    with tempfile.TemporaryFile() as log:
        one = Service.forked(log, OPS_PATH=str(ops), **SETTINGS).wait_until_ready()
        try:
            found = recorded(one.port, requests())
        finally:
            one.close()
    assert {case.answer.status for case in found} == {200}
    return found


class Figures:
    """Figures by name, in a file and in the terminal; no test depends on them."""

    def __init__(self) -> None:
        self.found: dict[str, object] = {}

    def record(self, name: str, **figures: float | str) -> None:
        """Keep figures: three significant digits."""
        self.found[name] = {
            key: f"{value:.3g}" if isinstance(value, float) else value for key, value in figures.items()
        }


FOUND = Figures()


@pytest.fixture(scope="session")
def figures() -> Figures:
    return FOUND


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures, and write them to build/fleet/figures.json."""
    if FOUND.found:
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(json.dumps(FOUND.found, indent=2) + "\n")
        for name, figures in FOUND.found.items():
            terminalreporter.write_line(f"{name}: {figures}")
