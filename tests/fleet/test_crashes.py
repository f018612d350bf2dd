"""A request that crashes its process: the balancer sends it to one other process at most, and the rest serve."""

import http.client
import json

import pytest

from tests.fast_path.wire import Wire, post
from tests.fleet.balancer import DOWN, UP
from tests.fleet.cases import IN_JSON
from tests.fleet.load import Load, recorded
from tests.patience import PATIENCE_S

CRASH = post("/v1/ops/crashing/forward", b'{"inputs":{"x":1.0},"attrs":{"crash":true}}', IN_JSON)
SOME = 200


@pytest.fixture
def whole(fleet):
    """The fleet, whose processes all live, before and afterwards."""
    yield fleet
    for member in fleet.members.values():
        if not member.lives:
            member.start()
    fleet.balancer.wait_for(UP, *fleet.members)


def test_a_request_that_crashes_a_process_ends_two_at_most(whole, cases, figures):
    with Wire(whole.port) as wire:
        wire.send(CRASH)
        answer = wire.answer()
    assert answer.status == 502
    assert b"content-type: application/problem+json" in answer.head.lower()
    assert json.loads(answer.body)["status"] == 502
    dead = [name for name, member in whole.members.items() if not member.lives]
    assert 1 <= len(dead) <= 2
    whole.balancer.wait_for(DOWN, *dead)
    with Load(whole.port, cases, 4) as load:
        load.wait_for(SOME)
    assert load.failures == []
    figures.record("a request that crashes its process", dead=len(dead))


def test_a_stuck_process_holds_no_request_until_its_deadline(whole, figures):
    """What waits for a computation that is stuck is refused while it is still stuck, and may be sent again."""
    stuck = whole.members["c"]
    connection = http.client.HTTPConnection(stuck.host, stuck.port, timeout=PATIENCE_S)
    headers = {"content-type": "application/json", "pullback-deadline-ms": "500"}
    request = post("/v1/ops/sleepy/forward", b'{"inputs":{"x":0.01}}', IN_JSON)
    # The trace of an op may take longer than the deadline.
    slow = [recorded(member.port, [request], member.host)[0] for member in whole.members.values()]
    with Load(whole.port, slow, 12, may_refuse=True) as load:
        load.wait_for(SOME)
        connection.request("POST", "/v1/ops/sleepy/forward", json.dumps({"inputs": {"x": 50}}), headers)
        assert connection.getresponse().status == 504
        whole.balancer.wait_for(DOWN, "c")
        while int(whole.balancer.statistics()["c"]["scur"]):
            load.wait_for(1)
        assert stuck.lives
    connection.close()
    stuck.service.process.kill()
    stuck.service.wait()
    assert load.failures == []
    assert 0 < load.statuses[503] <= load.statuses[200]
    figures.record("one stuck for 50 s, c=12", refused=load.statuses[503])
