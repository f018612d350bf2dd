"""A service with plug-in ops: well-behaved ones, faulty ones, and a file that does not load."""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.http.documented import Documented

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture(scope="session")
def plugin_folders(tmp_path_factory) -> str:
    """The plug-in folders in the form of the setting."""
    faulty, broken = tmp_path_factory.mktemp("faulty"), tmp_path_factory.mktemp("broken")
    # Imported here, so that tests without this service do not wait for TensorFlow.
    for name in importlib.import_module("tests.http.faulty").OPS:
        (faulty / f"{name}.py").write_text(
            f"from tests.http.faulty import OPS\n\nOP = OPS[{name!r}]\n", encoding="ascii"
        )
    (broken / "broken.py").write_text("import nothing_of_this_name\n", encoding="ascii")
    return os.pathsep.join(map(str, (PLUGINS, faulty, broken)))


@pytest.fixture(scope="session")
def plugged_service(start_for_session, plugin_folders):
    one = start_for_session(OPS_PATH=plugin_folders).wait_until_ready()
    yield one
    assert one.process.poll() is None, f"the service has ended; its log:\n{one.log()[-8000:]}"


# Creating a client takes longer than most requests, so all tests share one of each.
@pytest.fixture(scope="session")
def client(service) -> Iterator[httpx.Client]:
    with service.client() as one:
        one.event_hooks["response"].append(Documented().check)
        yield one


@pytest.fixture(scope="session")
def plugged(plugged_service) -> Iterator[httpx.Client]:
    """A client of the service with plug-in ops."""
    with plugged_service.client() as one:
        one.event_hooks["response"].append(Documented().check)
        yield one
