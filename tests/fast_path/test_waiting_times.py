"""The log and the metrics count all of a request's time: from its first byte, wherever it waits."""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.conftest import Service, Start
from tests.fast_path.both import GET, PATIENCE, TAKEN, metric
from tests.fast_path.conftest import PLUGINS
from tests.fast_path.wire import Wire, post
from tests.patience import PATIENCE_S, PAUSE_S

pytestmark = pytest.mark.slow

# How long a call of ``dawdling`` takes, how long a client pauses, and what a busy machine may add.
DAWDLES_S, WAIT_S, SLACK_S = 0.4, 0.5, 0.25
DEADLINE_S = 3.0
LINE = re.compile(r"POST \S+ (\d+) ([0-9.]+)ms .* id=(\S+)")
# As many numbers as one call takes at most, about.
FULL = 10_000


class Logged(NamedTuple):
    status: int
    seconds: float


def sending(op: str, count: int = 2, form: str = "content-type: application/json") -> bytes:
    return post(f"/v1/ops/{op}/forward", json.dumps({"inputs": {"x": [0.25] * count}}).encode(), form)


@pytest.fixture(scope="module", params=["1", "0"], ids=["fast", "general"])
def service(start_for_module: Start, request: pytest.FixtureRequest) -> Iterator[Service]:
    options = {"OPS_PATH": str(PLUGINS), "PROTOCOLS": "", "DEADLINE_S": str(DEADLINE_S)}
    one = start_for_module(EXPRESS=request.param, **options).wait_until_ready()
    for sent in (sending(op, count) for op in ("dawdling", "square") for count in (2, FULL)):
        warm(one.port, sent, is_fast=request.param == "1")
    yield one
    assert "Traceback" not in one.log()


def warm(port: int, sent: bytes, *, is_fast: bool) -> None:
    with Wire(port) as wire, Wire(port) as scrape:
        before = metric(scrape, TAKEN)
        for _ in range(PATIENCE if is_fast else 1):
            wire.send(sent)
            wire.answer()
            if metric(scrape, TAKEN) > before:
                return
    assert not is_fast, "the fast path does not take this request"


def logged(service: Service, wire: Wire) -> list[Logged]:
    """Return what the log says of each answer of a connection."""
    until = time.monotonic() + PATIENCE_S
    while True:
        lines = {name: Logged(int(status), float(ms) / 1000) for status, ms, name in LINE.findall(service.log())}
        names = [name.decode() for name in wire.ids]
        if set(names) <= lines.keys():
            return [lines[name] for name in names]
        assert time.monotonic() < until, names
        time.sleep(PAUSE_S)


def test_requests_that_wait_until_their_deadline(service: Service):
    """They wait for the calls of others; the histogram has the times of the log, and the wait counts as queued."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(service.port)) for _ in range(16)]
        for wire in wires:
            wire.send(sending("dawdling", FULL))
        assert {wire.answer().status for wire in wires} <= {200, 504}
        late = [line.seconds for wire in wires for line in logged(service, wire) if line.status == 504]
        assert late
        assert min(late) >= DEADLINE_S - SLACK_S
        scrape = stack.enter_context(Wire(service.port))
        scrape.send(GET % b"/metrics")
        labels = '{op="dawdling",operation="forward"}'
        of_op = dict(line.rsplit(" ", 1) for line in scrape.answer().body.decode().splitlines() if labels in line)
    seconds = [float(ms) / 1000 for ms in re.findall(r"/dawdling/\S+ \d+ ([0-9.]+)ms", service.log())]
    assert float(of_op[f"pullback_request_duration_seconds_count{labels}"]) == len(seconds)
    total = float(of_op[f"pullback_request_duration_seconds_sum{labels}"])
    assert total == pytest.approx(sum(seconds), abs=1e-4 * len(seconds))
    assert float(of_op[f"pullback_queue_seconds_total{labels}"]) > DEADLINE_S * len(late) / 2


@pytest.mark.parametrize("at", [1, 40, -5], ids=["request line", "header", "body"])
def test_a_request_in_pieces(service: Service, at: int):
    """The time of a request begins with its first byte, not with its last, and not with the connection."""
    with Wire(service.port) as wire:
        for _ in range(2):
            time.sleep(2 * WAIT_S)
            began, sent = time.monotonic(), sending("square")
            wire.send(sent[:at], sent[at:], pause_s=WAIT_S)
            assert wire.answer().status == 200
            took = time.monotonic() - began
            assert WAIT_S - SLACK_S < logged(service, wire)[-1].seconds < took + WAIT_S


def test_a_large_body_in_pieces(service: Service):
    sent = sending("square", 100_000)
    with Wire(service.port) as wire:
        wire.send(sent[:40], sent[40:-1], sent[-1:], pause_s=WAIT_S)
        assert wire.answer().status == 200
        assert logged(service, wire)[0].seconds > 2 * WAIT_S - SLACK_S


def test_requests_in_one_piece(service: Service):
    """A request that waits for an earlier one of its connection began when it arrived."""
    with Wire(service.port) as wire:
        wire.send(sending("dawdling") + sending("square"))
        assert [answer.status for answer in wire.answers(2)] == [200, 200]
        first, second = logged(service, wire)
        assert first.seconds >= DAWDLES_S
        assert second.seconds >= DAWDLES_S


def test_a_request_behind_one_that_is_computed(service: Service):
    """Its time begins with its own first byte."""
    with Wire(service.port) as wire:
        began = time.monotonic()
        wire.send(sending("dawdling"), sending("square"), pause_s=DAWDLES_S / 2)
        assert [answer.status for answer in wire.answers(2)] == [200, 200]
        took = time.monotonic() - began
        first, second = logged(service, wire)
        assert first.seconds >= DAWDLES_S
        assert second.seconds < took - DAWDLES_S / 2 + SLACK_S


def test_an_idle_connection_has_no_time(service: Service):
    """The deadline does not begin with the connection either."""
    with Wire(service.port) as wire:
        for _ in range(2):
            wire.send(sending("square"))
            assert wire.answer().status == 200
            time.sleep(DEADLINE_S + WAIT_S)
        assert max(line.seconds for line in logged(service, wire)) < DEADLINE_S


def test_the_deadline_begins_with_the_turn_of_a_connection(service: Service):
    """A client that sends many requests at once has the deadline for each."""
    count = int(DEADLINE_S / DAWDLES_S) + 2
    with Wire(service.port) as wire:
        wire.send(sending("dawdling") * count)
        assert [answer.status for answer in wire.answers(count)] == [200] * count
        assert logged(service, wire)[-1].seconds > DEADLINE_S
