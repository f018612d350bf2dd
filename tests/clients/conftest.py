"""Third-party clients, each in its own environment, against a service that ``tests.clients`` starts."""

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--url", required=True, help="the URL of the service")
    parser.addoption("--guarded-url", required=True, help="the URL of a service that needs a key")
    parser.addoption("--key", required=True, help="the key")
    parser.addoption("--python", required=True, help="the Python of the service, which has the command line")
    parser.addoption("--client", required=True, help="the name of the client in docs/clients.md")


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("url")


@pytest.fixture(scope="session")
def guarded_url(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("guarded_url")


@pytest.fixture(scope="session")
def key(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("key")


@pytest.fixture(scope="session")
def client(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("client")


class Checked(NamedTuple):
    """The exit code and the output of ``pullback check``."""

    code: int
    out: str


@pytest.fixture(scope="session")
def check(request: pytest.FixtureRequest) -> Callable[..., Checked]:
    """Run ``pullback check``, or another command, with the Python of the service."""

    def call(*args: str, command: str = "check") -> Checked:
        words = [request.config.getoption("python"), "-m", "pullback", command, *args]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
        return Checked(done.returncode, done.stdout + done.stderr)

    return call


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., str]]:
    """Start servers, each by a command with PORT in place of its port; return the URL once ``ready`` answers."""
    with ExitStack() as stack:

        def call(*command: str, ready: str, **variables: str) -> str:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            words = [word.replace("PORT", str(port)) for word in command]
            server = subprocess.Popen(words, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, stderr=2)
            stack.callback(server.wait)
            stack.callback(server.terminate)
            url, end = f"http://127.0.0.1:{port}", time.monotonic() + 60
            while True:
                try:
                    with urllib.request.urlopen(url + ready, timeout=5):
                        return url
                except OSError:
                    assert server.poll() is None, "the server has ended"
                    assert time.monotonic() < end, "the server does not answer"
                    time.sleep(0.1)

        yield call


Native = Callable[..., Any]


@pytest.fixture(scope="session")
def native(url: str) -> Native:
    """Call the native API, with the standard library, for the expected results: arrays in place of tensors."""

    def call(op: str, operation: str, **fields: Any) -> Any:
        request = urllib.request.Request(
            f"{url}/v1/ops/{op}/{operation}", json.dumps(fields).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return arrays(json.load(response))

    return call


def arrays(tree: Any) -> Any:
    """Return a response with an array in place of every tensor, in the closest NumPy dtype."""
    if isinstance(tree, dict) and set(tree) == {"dtype", "shape", "data"}:
        flat = np.array(tree["data"], object).reshape(-1)
        dtype = "float32" if tree["dtype"] == "bfloat16" else tree["dtype"]
        return np.array([float(x) if isinstance(x, str) else x for x in flat], dtype).reshape(tree["shape"])
    if isinstance(tree, dict):
        return {name: arrays(value) for name, value in tree.items()}
    return [arrays(value) for value in tree] if isinstance(tree, list) else tree
