"""Calls on the scheduler's thread: clients that leave, a service that stops, and keys, while one runs."""

import contextlib
import itertools
import json
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.fast_path.both import GET, PATIENCE, TAKEN, metric
from tests.fast_path.conftest import PLUGINS
from tests.fast_path.test_services import ALICE, Keyed, bearer, line_for
from tests.fast_path.wire import Wire, post
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

DAWDLES_S = 0.4
NUMBERS = itertools.count()


def dawdling(*headers: str) -> bytes:
    """Return a request to an op that sleeps."""
    body = json.dumps({"inputs": {"x": [next(NUMBERS) + 0.25, 1.5]}}).encode()
    return post("/v1/ops/dawdling/forward", body, "content-type: application/json", *headers)


def warm(port: int, scrape: Wire) -> None:
    """Send requests until the fast path takes them."""
    with Wire(port) as wire:
        before = metric(scrape, TAKEN)
        for _ in range(PATIENCE):
            wire.send(dawdling())
            assert wire.answer().status == 200
            if metric(scrape, TAKEN) > before:
                return
    pytest.fail("the fast path does not take this request")


@pytest.fixture
def service(start):
    one = start(OPS_PATH=str(PLUGINS), EXPRESS="1", DRAIN_S="1").wait_until_ready()
    with Wire(one.port) as scrape:
        warm(one.port, scrape)
    return one


def is_at_rest(port: int) -> bool:
    with Wire(port) as wire:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            wire.send(GET % b"/metrics")
            if b"\npullback_in_flight_requests 0.0\n" in wire.answer().body:
                return True
            time.sleep(0.05)
    return False


def test_requests_gather_while_a_call_runs(service):
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(service.port)) for _ in range(12)]
        began = time.monotonic()
        for wire in wires:
            wire.send(dawdling())
            time.sleep(0.01)
        assert {wire.answer().status for wire in wires} == {200}
        assert time.monotonic() - began < 4 * DAWDLES_S


def test_other_requests_do_not_wait(service):
    with Wire(service.port) as slow, Wire(service.port) as other:
        slow.send(dawdling())
        began = time.monotonic()
        other.send(GET % b"/health/live")
        assert other.answer().status == 200
        assert time.monotonic() - began < DAWDLES_S / 2
        assert slow.answer().status == 200


def test_a_client_that_leaves(service):
    """Others in its call are answered, and nothing stays taken."""
    with Wire(service.port) as stays:
        gone = [Wire(service.port) for _ in range(4)]
        for wire in (*gone, stays):
            wire.send(dawdling())
        time.sleep(0.05)
        for wire in gone:
            wire.socket.close()
        assert stays.answer().status == 200
    assert is_at_rest(service.port)
    assert service.log().count(" 499 ") == 4


def test_a_second_request_behind_one_whose_call_runs(service):
    """Both go to the general path; each is answered once, in order."""
    with Wire(service.port) as wire:
        first, second = dawdling(), dawdling()
        wire.send(first, second, pause_s=0.1)
        answers = wire.answers(2)
        for request, answer in zip((first, second), answers, strict=True):
            x = json.loads(request.partition(b"\r\n\r\n")[2])["inputs"]["x"]
            assert json.loads(answer.body)["outputs"]["y"]["data"] == x
    assert is_at_rest(service.port)


def test_a_service_that_stops_while_a_call_runs(service):
    results, wires = list[int](), [Wire(service.port) for _ in range(6)]

    def client(wire: Wire) -> None:
        with wire:
            for _ in range(100):
                wire.send(dawdling())
                answer = wire.answer()
                results.append(answer.status)
                if answer.is_last:
                    return

    threads = [threading.Thread(target=client, args=(wire,)) for wire in wires]
    for thread in threads:
        thread.start()
    time.sleep(DAWDLES_S / 2)
    service.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    assert service.wait() == 0
    assert Counter(results).keys() == {200}
    assert "Traceback" not in service.log()


def test_deadlines(start):
    """A request that waits for others on the thread has no more time than on the general path."""
    one = start(OPS_PATH=str(PLUGINS), EXPRESS="1", DEADLINE_S="1").wait_until_ready()
    with Wire(one.port) as scrape:
        warm(one.port, scrape)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(one.port)) for _ in range(3)]
        began = time.monotonic()
        for wire in wires:
            wire.send(dawdling())
            time.sleep(0.05)
        assert {wire.answer().status for wire in wires} <= {200, 504}
        assert time.monotonic() - began < 2.5


def test_a_deadline_ends_no_call_of_others(start):
    """A request that would wait on the thread with a deadline of its own takes the general path."""
    one = start(OPS_PATH=str(PLUGINS), EXPRESS="1").wait_until_ready()
    statuses: dict[str, int] = {}

    def send(name: str, *headers: str) -> None:
        with Wire(one.port) as wire:
            wire.send(dawdling(*headers))
            statuses[name] = wire.answer().status

    with Wire(one.port) as scrape:
        warm(one.port, scrape)
    hasty = ("hasty", "Pullback-Deadline-Ms: 20")
    threads = [threading.Thread(target=send, args=args) for args in (("first",), ("patient",), hasty)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert statuses == {"first": 200, "patient": 200, "hasty": 504}


def test_a_key_at_its_limit(start, tmp_path: Path):
    """A call on the thread keeps the place of its key until it ends."""
    file = tmp_path / "keys"
    file.write_text(line_for("alice", ALICE))
    options = {"KEYS_FILE": str(file), "KEY_INFLIGHT": "2", "OPS_PATH": str(PLUGINS)}
    both = Keyed(*(start(EXPRESS=fast, **options).wait_until_ready() for fast in "10"))
    key = bearer(ALICE)
    both.warm(lambda _: dawdling(key))
    for service in both.services:
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(Wire(service.port)) for _ in range(4)]
            for wire in wires:
                wire.send(dawdling(key))
                time.sleep(0.02)
            assert Counter(wire.answer().status for wire in wires) == {200: 2, 429: 2}
    assert {answer.status for answer in both.same(*(dawdling(key) for _ in range(3)))} == {200}
    both.close()
