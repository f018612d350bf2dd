"""The log, the metrics, keys, draining and timers: what belongs to a request the express way does too."""

import hashlib
import json
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.express.both import GET, Both
from tests.express.conftest import PLUGINS
from tests.express.wire import Answer, Wire, post, with_head
from tests.patience import PATIENCE_S

PATH = "/v1/ops/log1pexp/vjp"
JSON = "content-type: application/json"
ALICE, BOB = "pullback_Of-Alice-0123", "pullback_Of-Bob-4567"
TEXT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<method>\S+) (?P<path>\S+) (?P<status>\d+) (?P<ms>[0-9.]+)ms "
    r"in=(?P<in>\d+) out=(?P<out>\d+) client=(?P<client>\S+) id=(?P<id>\S+)(?: key=(?P<key>\S+))?"
)


def small(number: float, *lines: str) -> bytes:
    return with_head(PATH, (JSON, *lines), b'{"inputs":{"x":[%.3f,1.5]}}' % (number + 0.25))


def line_for(name: str, key: str) -> str:
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()}\n"


def bearer(key: str) -> str:
    return f"authorization: Bearer {key}"


@pytest.fixture(params=["text", "json"])
def logs(request, start_for_module) -> tuple[Both, str]:
    two = [start_for_module(OPS_PATH=str(PLUGINS), EXPRESS=express, LOG=request.param) for express in "10"]
    return Both(*(one.wait_until_ready() for one in two)), request.param


def lines_of(log: str, kind: str) -> list[dict[str, str]]:
    """Return the lines of requests with their fields."""
    found: list[dict[str, str]] = []
    for line in log.splitlines():
        if kind == "json" and '"path"' in line:
            assert list(json.loads(line)) == ["time", "method", "path", "status", "ms", "in", "out", "client", "id"]
            found.append({name: str(value) for name, value in json.loads(line).items()})
        elif match := TEXT.fullmatch(line):
            found.append(match.groupdict())
    return found


def test_log_and_metrics(logs):
    """Each way writes the same lines, and counts the same."""
    both, kind = logs
    both.teach(small)
    requests = [small(number) for number in range(8)]
    for path in (f"{PATH}?a=b", f"{PATH}#c", f"{PATH}?a#c"):
        requests += [small(number).replace(PATH.encode(), path.encode()) for number in range(10)]
    base64 = [post(PATH, b'{"inputs":{"x":[%d.25,1.5]},"encoding":"base64"}' % number) for number in range(9)]
    before = [counts(service.port) for service in both.services]
    with both.takes(len(requests) // 2):
        both.same(*requests, *base64)
    after = [counts(service.port) for service in both.services]
    differences = [
        {key: value - earlier.get(key, 0) for key, value in later.items() if value != earlier.get(key, 0)}
        for later, earlier in zip(after, before, strict=True)
    ]
    assert differences[0] == differences[1]
    assert any("duration" in name for name, _ in differences[0])
    until = time.monotonic() + PATIENCE_S
    while True:
        written = [lines_of(service.log(), kind)[-len(requests + base64) :] for service in both.services]
        kept = [
            [{name: line[name] for name in ("method", "path", "status", "in", "out")} for line in lines]
            for lines in written
        ]
        if kept[0] == kept[1] or time.monotonic() > until:
            break
        time.sleep(0.05)
    assert kept[0] == kept[1]
    ids = [line["id"] for line in written[0]]
    assert len({*ids}) == len(ids)
    assert {line["client"].rpartition(":")[0] for line in written[0]} == {"127.0.0.1"}
    assert all(0 < float(line["ms"]) < 1e5 for line in written[0])
    both.close()


def counts(port: int) -> dict[tuple[str, str], float]:
    """Return the counts of requests, of their times and of batches; those of both ways are the same."""
    with Wire(port) as wire:
        wire.send(GET % b"/metrics")
        text = wire.answer().body.decode()
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("pullback") and sample.name.endswith(("_total", "_count")):
                if "express" in sample.name or "process" in sample.name or sample.labels.get("operation") == "metrics":
                    continue
                found[sample.name, json.dumps(sample.labels, sort_keys=True)] = sample.value
    return found


@pytest.fixture
def guarded(start, tmp_path: Path):
    """Both ways with keys, each for a few requests at a time; the file of keys."""
    file = tmp_path / "keys"
    file.write_text(line_for("alice", ALICE) + line_for("bob", BOB))
    two = [start(EXPRESS=express, KEYS_FILE=str(file), KEY_INFLIGHT="2") for express in "10"]
    both = Keyed(*(one.wait_until_ready() for one in two))
    yield both, file
    both.close()


class Keyed(Both):
    """Both ways of services with keys."""

    def taken(self) -> int:
        self._scrape.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n%b\r\n\r\n" % bearer(ALICE).encode())
        text = self._scrape.answer().body
        return int(float(text.partition(b"\npullback_express_requests_total ")[2].split(b"\n", 1)[0]))


def test_keys(guarded):
    both, file = guarded
    both.teach(lambda n: small(n, bearer(BOB)))
    # With two keys, the last one counts.
    for pair in ((ALICE, BOB), (BOB, ALICE), (ALICE, "none"), ("none", ALICE)):
        for number in range(10):
            both.same(small(number, *map(bearer, pair)))
    both.teach(lambda n: small(n, bearer(ALICE)))
    with both.takes(4):
        both.same(*(small(number, bearer(key)) for number in range(4) for key in (ALICE, BOB)))
    names = [re.findall(r"key=(\S+)", service.log()) for service in both.services]
    assert Counter(names[0]) | Counter() == Counter(names[0])
    assert abs(names[0].count("bob") - names[1].count("bob")) < 2
    both.same(small(1), small(1, bearer("none")), small(1, bearer(BOB)))
    file.write_text(line_for("alice", ALICE))
    time.sleep(1.1)  # the file is read again after a second
    answers = both.same(*(small(number, bearer(BOB)) for number in range(5)))
    assert {answer.status for answer in answers} == {401}
    for pair in ((ALICE, BOB), (BOB, ALICE)):
        both.same(*(small(number, *map(bearer, pair)) for number in range(3)))
    assert both.same(small(1, bearer(ALICE)))[0].status == 200


def test_the_limit_of_a_key(guarded):
    """Two requests without their bodies take the places of a key: the third is refused, learned or not."""
    both, _ = guarded
    both.teach(lambda n: small(n, bearer(BOB)))
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\n{bearer(BOB)}\r\ncontent-length: 20\r\n\r\n".encode()
    waiting = [Wire(service.port) for service in both.services for _ in range(2)]
    for wire in waiting:
        wire.send(head)
    until = time.monotonic() + PATIENCE_S
    while both.services and time.monotonic() < until:
        with Wire(both.services[0].port) as one, Wire(both.services[1].port) as other:
            answers: list[Answer] = []
            for wire in (one, other):
                wire.send(small(1, bearer(BOB)))
                answers.append(wire.answer())
        if {answer.status for answer in answers} == {429}:
            break
    assert {answer.status for answer in both.same(small(2, bearer(BOB)))} == {429}
    for wire in waiting:
        wire.socket.close()
    # Each place is given back: many requests in turn, more than there are places.
    until = time.monotonic() + PATIENCE_S
    while both.exchange(small(3, bearer(BOB)))[0].status != 200:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert {answer.status for answer in both.same(*(small(n, bearer(BOB)) for n in range(10)))} == {200}


def test_draining_loses_nothing(start):
    one = start(EXPRESS="1", DRAIN_S="1").wait_until_ready()
    results: list[list[Answer]] = [[] for _ in range(16)]
    wrong: list[bytes] = []
    reference: dict[int, Answer] = {}
    with Wire(one.port) as wire:
        for number in range(50):
            wire.send(small(number))
            reference[number] = wire.answer()

    def client(number: int) -> None:
        with Wire(one.port) as wire:
            for turn in range(10**6):
                which = (number + turn) % 50
                wire.send(small(which))
                answer = wire.answer()
                results[number].append(answer)
                if answer.is_last:
                    return
                if answer != reference[which]:
                    wrong.append(answer.body)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    one.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert one.wait() == 0
    assert not wrong
    for answers in results:
        assert {answer.status for answer in answers} == {200}, "an answer was lost"
        assert answers[-1].is_last
        assert b"\r\nconnection: close\r\n" in answers[-1].head
    assert "Traceback" not in one.log()


def test_requests_that_cannot_share_a_call_stay_off_the_event_loop(two_services):
    """An op that sleeps is never learned: the service answers others meanwhile."""
    service, stop, slowest = two_services[0], threading.Event(), [0.0]

    def probe() -> None:
        with Wire(service.port) as wire:
            while not stop.is_set():
                began = time.monotonic()
                wire.send(GET % b"/health/live")
                wire.answer()
                slowest[0] = max(slowest[0], time.monotonic() - began)

    thread = threading.Thread(target=probe)
    with Wire(service.port) as wire:
        for number in range(3):
            wire.send(post("/v1/ops/dawdling/forward", b'{"inputs":{"x":[%d.5,1.5]}}' % number))
            wire.answer()
        thread.start()
        began = time.monotonic()
        for number in range(6):
            wire.send(post("/v1/ops/dawdling/forward", b'{"inputs":{"x":[%d.5,1.5]}}' % number))
            assert wire.answer().status == 200
        took = time.monotonic() - began
        stop.set()
        thread.join()
    assert slowest[0] < took / 8, (slowest, took)
