"""Remote ops in a framework, in an environment of its own, against a service that ``tests.frameworks`` starts."""

import re
import urllib.request
from collections.abc import Callable

import pytest

Count = Callable[[], int]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--url", required=True, help="the URL of the service")
    parser.addoption("--framework", required=True, help="the name of the framework in docs/frameworks.md")


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("url")


@pytest.fixture(scope="session")
def framework(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("framework")


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
