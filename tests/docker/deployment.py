"""The service of docker-compose.yml, in a container."""

import json
import os
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import ROOT

COMPOSE_FILE = ROOT / "docker-compose.yml"
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
    """docker-compose.yml with an image, in its own folder, on a free port, with a unique project name."""

    def __init__(self, folder: Path, image: str) -> None:
        project, own = f"pullback-test-{uuid.uuid4().hex[:8]}", folder / "image.json"
        own.write_text(json.dumps({"services": {"pullback": {"image": image}}}))
        files = ["-f", str(COMPOSE_FILE), "-f", str(own), "--project-directory", str(folder)]
        self._command = [*compose_command(), *files, "-p", project]

    def compose(self, *args: str) -> str:
        done = call(*self._command, *args, env={**os.environ, "PUBLISH": "127.0.0.1:0"})
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def up(self) -> "Deployment":
        self.compose("up", "--detach", "--no-build")
        self.container = self.compose("ps", "--quiet", "pullback")
        return self.wait_until_healthy()

    def wait_until_healthy(self) -> "Deployment":
        end = time.monotonic() + HEALTHY_S
        while (health := self.inspect()["State"]["Health"]["Status"]) != "healthy":
            assert time.monotonic() < end, f"{health}\n{self.log()}"
            time.sleep(0.2)
        return self

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
