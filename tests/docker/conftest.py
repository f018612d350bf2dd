"""Fixtures that run an image with docker-compose.yml, by default that of `make docker-test`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docker.deployment import CPU, Deployment


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--image", default=CPU, help="the image of the service")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Deployment]:
    """The service of docker-compose.yml, with plug-in ops in my_ops."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "tests/http/plugins", folder / "my_ops", ignore=shutil.ignore_patterns("__pycache__"))
    yield from deploy(folder, pytestconfig)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Deployment]:
    """The same service without my_ops, as in a fresh clone."""
    yield from deploy(tmp_path_factory.mktemp("clone"), pytestconfig)


def deploy(folder: Path, config: pytest.Config) -> Iterator[Deployment]:
    deployment = Deployment(folder, str(config.getoption("--image")))
    try:
        yield deployment.up()
    finally:
        deployment.compose("down", "--volumes", "--timeout", "1")
