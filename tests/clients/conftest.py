"""Third-party clients, each in its own environment, against a service that ``tests.clients`` starts."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--url", required=True, help="the URL of the service")
    parser.addoption("--guarded-url", required=True, help="the URL of a service that needs a key")
    parser.addoption("--key", required=True, help="the key")
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
