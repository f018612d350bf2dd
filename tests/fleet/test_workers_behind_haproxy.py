"""One host with several workers behind HAProxy: a worker that is killed loses nothing."""

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest

from tests.conftest import Service
from tests.fleet.balancer import HOST, UP, Balancer
from tests.fleet.load import Load
from tests.fleet.members import SETTINGS

CONNECTIONS, SOME = 16, 300


@pytest.fixture
def host() -> Iterator[Service]:
    with tempfile.TemporaryFile() as log:
        one = Service.forked(log, WORKERS="3", **SETTINGS).wait_until_ready()
        yield one
        one.close()


def killed_under(load: Load, host: Service) -> None:
    """Kill a worker in the middle of requests. Of three, one at least serves, though others may still start."""
    load.wait_for(SOME)
    os.kill(host.workers()[0], signal.SIGKILL)
    load.wait_for(SOME)


def test_a_killed_worker_loses_nothing_behind_the_balancer(host, cases, figures, tmp_path):
    with tempfile.TemporaryFile() as log, Balancer({"a": f"{HOST}:{host.port}"}, tmp_path, log) as balancer:
        balancer.wait_for(UP, "a")
        with Load(balancer.port, cases, CONNECTIONS) as load:
            killed_under(load, host)
        with Load(host.port, cases, CONNECTIONS) as alone:
            killed_under(alone, host)
    assert load.failures == []
    assert load.statuses.keys() == {200}
    # Without a balancer, those that a worker has begun are lost; those that arrive later are not.
    assert len(alone.failures) <= CONNECTIONS
    figures.record(
        "kill -9 of one of three workers, c=16",
        **{"failures": len(load.failures), "without balancer": len(alone.failures)},
    )
