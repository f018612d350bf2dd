"""Remote ops in a framework, in its environment, against a service that ``tests.frameworks`` starts."""

import base64
import importlib
import os
import pickle
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.recording_proxy import RecordingProxy, recording_proxy

Count = Callable[[], int]
Python = Callable[..., str]
KEY, PASSWORD, HEADER = "k3y-of-mine", "passw0rd-of-mine", "h3ader-of-mine"
SECRETS = (KEY, PASSWORD, HEADER, base64.b64encode(f"me:{PASSWORD}".encode()).decode())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--url", required=True, help="the URL of the service")
    parser.addoption("--framework", required=True, help="the name of the framework in the docs")


def module_of(config: pytest.Config) -> str:
    """Return the name of the module for the framework: PyMC has PyTensor's."""
    framework = config.getoption("framework")
    return "pytensor" if framework == "pymc" else framework


def adapter_of(config: pytest.Config) -> ModuleType:
    return importlib.import_module(f"tests.frameworks.with_{module_of(config)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the tests of all frameworks the ways in which this one runs a function."""
    if {"adapter", "way"} <= {*metafunc.fixturenames}:
        ways = adapter_of(metafunc.config).WAYS
        metafunc.parametrize("way", ways.values(), ids=ways)


@pytest.fixture(scope="session")
def adapter(request: pytest.FixtureRequest) -> ModuleType:
    return adapter_of(request.config)


@pytest.fixture
def remote(request: pytest.FixtureRequest, url: str) -> Callable[..., Any]:
    """Return the function that makes a remote op a function of the framework."""
    return partial(importlib.import_module(f"pullback.{module_of(request.config)}").remote, url=url)


@pytest.fixture
def compose(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return the function that makes one remote function of several."""
    return importlib.import_module(f"pullback.{module_of(request.config)}").compose


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("url")


@pytest.fixture(scope="session")
def framework(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("framework")


@pytest.fixture
def proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingProxy]:
    """Return a proxy of the service that records headers; the environment has no key."""
    monkeypatch.delenv("PULLBACK_KEY", raising=False)
    monkeypatch.delenv("PULLBACK_URL", raising=False)
    with recording_proxy(url) as one:
        yield one


@pytest.fixture
def secret(proxy: RecordingProxy) -> dict[str, Any]:
    """Return the arguments of a remote op that are, or have, secrets."""
    url = proxy.url.replace("://", f"://me:{PASSWORD}@")
    return {"url": url, "api_key": KEY, "headers": {"X-Tenant": HEADER}}


@pytest.fixture
def python() -> Python:
    """Run a program in a new process; return its output."""

    def run(program: str, *arguments: str | Path, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, **variables},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def assert_no_secret(*texts: str | bytes) -> None:
    for text in texts:
        assert text
        for secret in SECRETS:
            assert (secret.encode() if isinstance(text, bytes) else secret) not in text


def pickles(thing: Any) -> list[bytes]:
    return [pickle.dumps(thing, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]


@pytest.fixture
def count(url: str) -> Count:
    """Return how many requests for ops the service has answered since the last call; contracts do not count."""
    last = total(url)

    def new() -> int:
        nonlocal last
        before, last = last, total(url)
        return last - before

    return new


def total(url: str) -> int:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
        text = response.read().decode()
    found = re.findall(r'^pullback_requests_total\{op="\w[^"]*",.*\} (\S+)$', text, re.MULTILINE)
    return int(sum(map(float, found)))
