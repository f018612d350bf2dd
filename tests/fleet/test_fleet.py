"""Three processes behind HAProxy: no request is lost while processes come and go, and every answer has the same bits.

Nothing here depends on speed. Figures are printed, and kept in build/fleet/figures.json.
"""

import http.client
import json
import re
import signal
import statistics
import threading
import time
from typing import NamedTuple

import httpx
import pytest

from tests.fast_path.wire import post
from tests.fleet.balancer import DOWN, UP, resent
from tests.fleet.cases import IN_JSON
from tests.fleet.load import HOST, Case, Load, recorded
from tests.patience import PATIENCE_S

CONNECTIONS = 16
SOME = 200
# Milliseconds that a stuck request may take, and seconds for which its computation blocks one of two threads.
STUCK_DEADLINE_MS, STUCK_S = "500", 16.0
ROUNDS = 600
FAST = re.compile(r"^pullback_express_requests_total (\S+)$", re.MULTILINE)
# The requests that the balancer keeps, for three servers: those that it has sent, and those that wait.
WAITING = 3 * (64 + 64)
# Matrix products: about 20 ms.
STEPS = 60


class Count(NamedTuple):
    """How many answers a load has had at a time, and how many of them were 200."""

    seconds: float
    answered: int
    good: int

    @classmethod
    def of(cls, load: Load) -> "Count":
        return cls(time.monotonic(), load.answered, load.statuses[200])

    def since(self, before: "Count") -> float:
        """Return the answers per second since then."""
        return (self.answered - before.answered) / (self.seconds - before.seconds)

    def good_since(self, before: "Count") -> float:
        """Return the answers with 200 per second since then."""
        return (self.good - before.good) / (self.seconds - before.seconds)


def rates(load: Load) -> dict[str, float]:
    return {
        "answers": load.answered,
        "a second": load.answered / load.seconds,
        "p50 ms": 1e3 * load.percentile_s(0.5),
        "p99 ms": 1e3 * load.percentile_s(0.99),
    }


def test_a_rolling_restart_loses_nothing(fleet, cases, figures):
    before = resent(fleet.balancer)
    with Load(fleet.port, cases, CONNECTIONS) as load:
        load.wait_for(SOME)
        for name, member in fleet.members.items():
            member.service.process.terminate()
            assert member.service.wait() == 0
            load.wait_for(SOME)
            member.start()
            fleet.balancer.wait_for(UP, name)
        load.wait_for(SOME)
    assert load.failures == []
    assert load.statuses.keys() == {200}
    assert all(int(row["hrsp_2xx"]) for row in fleet.balancer.statistics().values())
    figures.record(
        "rolling restart, c=16", **rates(load), failures=len(load.failures), resent=resent(fleet.balancer) - before
    )


def test_processes_killed_one_after_the_other_lose_nothing(fleet, cases, figures):
    """The second dies as soon as the first is there again."""
    before = resent(fleet.balancer)
    with Load(fleet.port, cases, CONNECTIONS) as load:
        for name in ("b", "c"):
            member = fleet.members[name]
            load.wait_for(SOME)
            member.service.process.kill()
            assert member.service.wait() == -signal.SIGKILL
            fleet.balancer.wait_for(DOWN, name)
            load.wait_for(SOME)
            member.start()
            fleet.balancer.wait_for(UP, name)
        load.wait_for(SOME)
    again = resent(fleet.balancer) - before
    assert load.failures == []
    assert load.statuses.keys() == {200}
    # Of each process, at most those in flight, and as many whose connections it refuses before it is marked down.
    assert again <= 2 * 2 * CONNECTIONS
    figures.record("kill -9 of two of three, c=16", **rates(load), failures=len(load.failures), resent=again)


def test_a_stuck_process_is_left_out_and_comes_back(fleet, cases, figures):
    stuck = fleet.members["c"]
    body = json.dumps({"inputs": {"x": STUCK_S}}).encode()

    def hang() -> None:
        connection = http.client.HTTPConnection(stuck.host, stuck.port, timeout=PATIENCE_S)
        headers = {"content-type": "application/json", "pullback-deadline-ms": STUCK_DEADLINE_MS}
        connection.request("POST", "/v1/ops/sleepy/forward", body, headers)
        answers.append(connection.getresponse().status)
        connection.close()

    answers = list[int]()
    # The trace of an op may take longer than the deadline.
    recorded(stuck.port, [post("/v1/ops/sleepy/forward", b'{"inputs":{"x":0.01}}', IN_JSON)], stuck.host)
    # What waits for the computation is refused.
    with Load(fleet.port, cases, CONNECTIONS, may_refuse=True) as load:
        load.wait_for(SOME)
        thread = threading.Thread(target=hang)
        thread.start()
        fleet.balancer.wait_for(DOWN, "c")
        load.wait_for(SOME)
        thread.join(PATIENCE_S)
        fleet.balancer.wait_for(UP, "c")
        before = int(fleet.balancer.statistics()["c"]["hrsp_2xx"])
        while int(fleet.balancer.statistics()["c"]["hrsp_2xx"]) == before:
            load.wait_for(SOME)
    assert answers == [504]
    assert load.failures == []
    assert load.statuses[503] <= CONNECTIONS
    figures.record("one stuck for 16 s, c=16", **rates(load), refused=load.statuses[503])


@pytest.fixture
def work(fleet) -> list[Case]:
    """A request that computes for some 20 ms, with its answer."""
    body = json.dumps({"inputs": {"x": [1.5], "steps": STEPS}}).encode()
    request = post("/v1/ops/endless/forward", body, IN_JSON)
    answers = [recorded(m.port, [request], m.host) for m in fleet.members.values()]
    assert all(found == answers[0] for found in answers)
    return answers[0]


def test_overload_is_refused_and_the_rest_answered(fleet, work, figures):
    with Load(fleet.port, work, CONNECTIONS) as peak:
        peak.wait_for(SOME)
        before = Count.of(peak)
        peak.wait_for(400)
        capacity = Count.of(peak).good_since(before)
    assert peak.failures == []
    # Those whose requests wait send no others.
    count = WAITING + 800
    with Load(fleet.port, work, count, (count - WAITING) / (10 * capacity), may_refuse=True) as load:
        while not load.statuses[503] > SOME:
            load.wait_for(1)
        before = Count.of(load)
        while load.statuses[200] < before.good + 600:
            load.wait_for(1)
        after = Count.of(load)
    assert load.failures == []
    assert load.statuses.keys() == {200, 503}
    # Whoever is served afterwards gets the right bits again.
    with Load(fleet.port, work, CONNECTIONS) as later:
        later.wait_for(SOME)
    assert later.failures == []
    figures.record(
        "overload",
        **{"peak a second": capacity, "answers a second": after.since(before)},
        **{"goodput a second": after.good_since(before), "goodput / peak": after.good_since(before) / capacity},
        **{"goodput p99 s": load.percentile_s(0.99)},
    )


def on_the_fast_path(fleet) -> float:
    """Return how many requests two of the processes, which only the balancer asks, have answered on the fast path."""
    pages = [httpx.get(f"http://{fleet.members[name].address}/metrics").text for name in ("b", "c")]
    return sum(float(value) for page in pages for value in FAST.findall(page))


def test_what_the_balancer_costs_is_recorded(fleet, cases, figures):
    """One request after the other, to a process and through the balancer in turn."""
    member, small = fleet.members["a"], min(cases, key=lambda case: len(case.request))
    path = small.request.split(b" ", 2)[1].decode()
    body = small.request.split(b"\r\n\r\n", 1)[1]
    ways = {
        "alone": http.client.HTTPConnection(member.host, member.port, timeout=PATIENCE_S),
        "through": http.client.HTTPConnection(HOST, fleet.port, timeout=PATIENCE_S),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    before = on_the_fast_path(fleet)
    for _ in range(ROUNDS):
        for name, connection in ways.items():
            began = time.monotonic()
            connection.request("POST", path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, small.answer.body)
            seconds[name].append(time.monotonic() - began)
    for connection in ways.values():
        connection.close()
    # The balancer's requests take it too: it adds no header that differs from request to request.
    assert on_the_fast_path(fleet) > before
    alone, through = (1e3 * statistics.median(found) for found in seconds.values())
    figures.record("balancer, c=1", **{"alone p50 ms": alone, "through p50 ms": through, "cost ms": through - alone})
