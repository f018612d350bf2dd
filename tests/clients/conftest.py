"""Other people's clients, each in an environment of its own, against a service that ``tests.clients`` has started."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--url", required=True, help="where the service is")
    parser.addoption("--client", required=True, help="whose environment this is, as docs/clients.md calls it")


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("url")


@pytest.fixture(scope="session")
def client(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("client")


Native = Callable[..., Any]


@pytest.fixture(scope="session")
def native(url: str) -> Native:
    """Ask the native API, by nothing but Python, for what a client should be told: arrays in place of tensors."""

    def asked(op: str, operation: str, **fields: Any) -> Any:
        request = urllib.request.Request(
            f"{url}/v1/ops/{op}/{operation}", json.dumps(fields).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return arrays(json.load(answer))

    return asked


def arrays(tree: Any) -> Any:
    """Return an answer with an array in place of every tensor, of the dtype that NumPy has for it."""
    if isinstance(tree, dict) and set(tree) == {"dtype", "shape", "data"}:
        flat = np.array(tree["data"], object).reshape(-1)
        dtype = "float32" if tree["dtype"] == "bfloat16" else tree["dtype"]
        return np.array([float(x) if isinstance(x, str) else x for x in flat], dtype).reshape(tree["shape"])
    if isinstance(tree, dict):
        return {name: arrays(value) for name, value in tree.items()}
    return [arrays(value) for value in tree] if isinstance(tree, list) else tree
