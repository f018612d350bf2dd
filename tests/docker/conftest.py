"""Fixtures that run the images built by `make docker-test` with docker-compose.yml."""

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
CPU, GPU = "pullback:cpu", "pullback:gpu"
COMMAND_S, HEALTHY_S = 300, 120


def call(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for it, whatever its exit code."""
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMMAND_S, **options)


def docker(*args: str) -> str:
    """Run docker; return its output."""
    done = call("docker", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def compose_command() -> list[str]:
    """Return the command of Compose: a plug-in of docker, or a separate program."""
    if call("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"]


class Deployment:
    """docker-compose.yml in its own folder, on a free port, with a unique project name."""

    def __init__(self, folder: Path) -> None:
        project = f"pullback-test-{uuid.uuid4().hex[:8]}"
        files = ["-f", str(ROOT / "docker-compose.yml"), "--project-directory", str(folder)]
        self._command = [*compose_command(), *files, "-p", project]

    def compose(self, *args: str) -> str:
        done = call(*self._command, *args, env={**os.environ, "PUBLISH": "127.0.0.1:0"})
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def up(self) -> "Deployment":
        self.compose("up", "--detach", "--no-build")
        return self.wait_until_healthy()

    def wait_until_healthy(self) -> "Deployment":
        end = time.monotonic() + HEALTHY_S
        while (health := self.inspect()["State"]["Health"]["Status"]) != "healthy":
            assert time.monotonic() < end, f"{health}\n{self.log()}"
            time.sleep(0.2)
        return self

    @property
    def container(self) -> str:
        return self.compose("ps", "--quiet", "pullback")

    def inspect(self) -> dict[str, Any]:
        return json.loads(docker("inspect", self.container))[0]

    @property
    def url(self) -> str:
        return f"http://{self.compose('port', 'pullback', '8000')}"

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container."""
        return call("docker", "exec", self.container, *command)

    def log(self) -> str:
        done = call("docker", "logs", self.container)
        return done.stdout + done.stderr


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The service of docker-compose.yml, with plug-in ops in my_ops."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "tests/http/plugins", folder / "my_ops", ignore=shutil.ignore_patterns("__pycache__"))
    yield from deploy(folder)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The same service without my_ops, as in a fresh clone."""
    yield from deploy(tmp_path_factory.mktemp("clone"))


def deploy(folder: Path) -> Iterator[Deployment]:
    deployment = Deployment(folder)
    try:
        yield deployment.up()
    finally:
        deployment.compose("down", "--volumes", "--timeout", "1")
