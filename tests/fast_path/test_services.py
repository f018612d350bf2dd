"""The log, the metrics, keys, draining and timers: the fast path does all that belongs to a request."""

import contextlib
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

from tests.fast_path.both import GET, Both
from tests.fast_path.conftest import PLUGINS
from tests.fast_path.wire import Answer, Wire, post, with_head
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

PATH = "/v1/ops/log1pexp/vjp"
JSON = "content-type: application/json"
# How often requests that arrive together are tried.
ROUNDS = 50
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


def lines_of(log: str) -> list[dict[str, str]]:
    """Return the lines of requests with their fields."""
    return [match.groupdict() for line in log.splitlines() if (match := TEXT.fullmatch(line))]


def test_log_and_metrics(start):
    """Each service writes the same lines, and counts the same."""
    both = Both(*(start(OPS_PATH=str(PLUGINS), EXPRESS=fast, LOG="text").wait_until_ready() for fast in "10"))
    both.warm(small)
    requests = [small(number) for number in range(8)]
    for path in (f"{PATH}?a=b", f"{PATH}#c", f"{PATH}?a#c"):
        requests += [small(number).replace(PATH.encode(), path.encode()) for number in range(10)]
    base64 = [post(PATH, b'{"inputs":{"x":[%d.25,1.5]},"encoding":"base64"}' % number) for number in range(9)]
    before = [counts(service.port) for service in both.services]
    with both.takes(12):
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
        written = [lines_of(service.log())[-len(requests + base64) :] for service in both.services]
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
    """Return the counts of requests, of their times and of batches; those of both services are the same."""
    with Wire(port) as wire:
        wire.send(GET % b"/metrics")
        text = wire.answer().body.decode()
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if (
                sample.name.startswith("pullback")
                and sample.name.endswith(("_total", "_count"))
                and "_seconds_total" not in sample.name
            ):
                if "express" in sample.name or "process" in sample.name or sample.labels.get("operation") == "metrics":
                    continue
                found[sample.name, json.dumps(sample.labels, sort_keys=True)] = sample.value
    return found


@pytest.fixture
def guarded(start, tmp_path: Path):
    """Both services with keys, each for a few requests at a time; the file of keys."""
    file = tmp_path / "keys"
    file.write_text(line_for("alice", ALICE) + line_for("bob", BOB))
    two = [start(EXPRESS=fast, KEYS_FILE=str(file), KEY_INFLIGHT="2") for fast in "10"]
    both = Keyed(*(one.wait_until_ready() for one in two))
    yield both, file
    both.close()


class Keyed(Both):
    """A connection to both services with keys."""

    def taken(self) -> int:
        self._scrape.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n%b\r\n\r\n" % bearer(ALICE).encode())
        text = self._scrape.answer().body
        return int(float(text.partition(b"\npullback_express_requests_total ")[2].split(b"\n", 1)[0]))


def test_keys(guarded):
    both, file = guarded
    both.warm(lambda n: small(n, bearer(BOB)))
    # With two keys, the last one counts.
    for pair in ((ALICE, BOB), (BOB, ALICE), (ALICE, "none"), ("none", ALICE)):
        for number in range(10):
            both.same(small(number, *map(bearer, pair)))
    both.warm(lambda n: small(n, bearer(ALICE)))
    with both.takes(4):
        both.same(*(small(number, bearer(key)) for number in range(4) for key in (ALICE, BOB)))
    until, differ = time.monotonic() + PATIENCE_S, True
    while differ and time.monotonic() < until:
        # The lines are written a moment after the answers.
        time.sleep(0.05)
        names = [Counter(re.findall(r"/vjp .* key=(\S+)", service.log())) for service in both.services]
        differ = abs(names[0]["bob"] - names[1]["bob"]) > 1
    assert not differ
    both.same(small(1), small(1, bearer("none")), small(1, bearer(BOB)))
    file.write_text(line_for("alice", ALICE))
    time.sleep(1.5)  # the file is examined once a second
    answers = both.same(*(small(number, bearer(BOB)) for number in range(5)))
    assert {answer.status for answer in answers} == {401}
    for pair in ((ALICE, BOB), (BOB, ALICE)):
        both.same(*(small(number, *map(bearer, pair)) for number in range(3)))
    assert both.same(small(1, bearer(ALICE)))[0].status == 200


def test_the_place_of_a_key_is_given_back(guarded):
    """Many more requests in turn than a key may have at a time."""
    both, _ = guarded
    both.warm(lambda n: small(n, bearer(BOB)))
    with both.takes(8):
        assert {answer.status for answer in both.same(*(small(n, bearer(BOB)) for n in range(10)))} == {200}


def test_more_requests_than_a_key_may_have(guarded):
    """Those that arrive together exceed the limit of the key: some are refused, and no more are answered at a time."""
    both, _ = guarded
    both.warm(lambda n: small(n, bearer(BOB)))
    statuses: Counter[int] = Counter()
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(both.services[0].port)) for _ in range(8)]
        for _ in range(ROUNDS):
            both.services[0].process.send_signal(signal.SIGSTOP)
            for wire in wires:
                wire.send(small(1, bearer(BOB)))
            both.services[0].process.send_signal(signal.SIGCONT)
            statuses.update(wire.answer().status for wire in wires)
            # The service may also have read them one after the other.
            if statuses[429]:
                break
    assert set(statuses) <= {200, 429}
    assert statuses[429]


def test_what_requests_take_is_given_back(start):
    """Bodies of more bytes in all than the budget has, whole or in parts, leave it free, and no request in progress."""
    two = [start(EXPRESS=fast, MAX_INFLIGHT_MB="1").wait_until_ready() for fast in "10"]
    both = Both(*two)

    def request(number: int) -> bytes:
        numbers = ",".join(f"{number + each / 8 + 0.0625:.4f}" for each in range(3000))
        return with_head(PATH, (JSON,), b'{"inputs":{"x":[%b]}}' % numbers.encode())

    both.warm(request)
    with both.takes(80):
        assert {answer.status for answer in both.same(*(request(number) for number in range(60)))} == {200}
        for number in range(60):
            data = request(number)
            assert both.exchange(data[:20000], data[20000:], pause_s=0.001)[0].status == 200
    for service in both.services:
        with Wire(service.port) as wire:
            wire.send(GET % b"/metrics")
            assert b"\npullback_in_flight_requests 0.0\n" in wire.answer().body
    both.close()


@pytest.mark.thorough
def test_the_rest_of_a_body_that_never_comes(start):
    """The general path waits for it until the deadline, and says so."""
    both = Both(*(start(EXPRESS=fast, DEADLINE_S="8").wait_until_ready() for fast in "10"))
    both.warm(small)
    answers: list[Answer] = []
    wires = [Wire(service.port) for service in both.services]
    for wire in wires:
        wire.send(small(1))
        wire.answer()
        wire.send(small(2)[:-3])
    for wire in wires:
        answers.append(wire.answer())
        wire.socket.close()
    assert answers[0] == answers[1]
    assert answers[0].status == 408
    both.close()


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
