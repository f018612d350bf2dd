"""Fixtures: a fleet for all tests, and the answers of a quiet process, which are the measure."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, Service
from tests.fleet.cases import requests
from tests.fleet.load import Case, recorded
from tests.fleet.members import SETTINGS, Fleet, plugin_ops, running

FIGURES = ROOT / "build" / "fleet" / "figures.json"


@pytest.fixture(scope="session")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plugin_ops(tmp_path_factory.mktemp("ops"))


@pytest.fixture(scope="session")
def fleet(ops: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running(ops, tmp_path_factory.mktemp("haproxy")) as fleet:
        yield fleet


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
        earlier = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
        FIGURES.write_text(json.dumps(earlier | FOUND.found, indent=2) + "\n")
        for name, figures in FOUND.found.items():
            terminalreporter.write_line(f"{name}: {figures}")
