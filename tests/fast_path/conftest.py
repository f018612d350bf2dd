"""Two services that differ in one setting: one has the fast path, the other has not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fast_path.both import Both

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture(scope="session")
def two_services(start_for_session):
    two = [start_for_session(OPS_PATH=str(PLUGINS), EXPRESS=fast) for fast in "10"]
    yield [one.wait_until_ready() for one in two]
    for one in two:
        assert one.process.poll() is None, f"the service has ended; its log:\n{one.log()[-8000:]}"
        assert "Traceback" not in one.log(), one.log()[-8000:]


@pytest.fixture
def both(two_services) -> Iterator[Both]:
    one = Both(*two_services)
    yield one
    one.close()
