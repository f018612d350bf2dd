"""Good requests between the attacks: their answers must be those of the quiet service, bit for bit."""

import itertools
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.hostile.findings import FAULT, LOST, STALL, STATUS, WRONG, Findings
from tests.hostile.requests import Request
from tests.hostile.rules import BUSY
from tests.hostile.target import Target, find_growth
from tests.hostile.wire import Answer, Lost, Wire

ANSWER_S = 45.0
# The slowest good answer of GET /health/live, on a machine that the attack shares.
LIVE_S = 5.0
PULSE_S = 0.2
# A witness sends so many requests on a connection, then opens another.
ON_ONE_CONNECTION = 10
WITNESSES, PACE_S = 2, 0.005
QUIET_S = 1.5


@dataclass(frozen=True)
class Good:
    """A request and its answer on the quiet service."""

    request: Request
    answer: Answer


def record(port: int, requests: Sequence[Request]) -> list[Good]:
    """Return the requests with their answers; those that the service itself cannot answer are left out."""
    found = [Good(request, ask(port, request)) for request in requests]
    return [good for good in found if good.answer.status < 500]


def ask(port: int, request: Request, timeout_s: float = ANSWER_S) -> Answer:
    """Return the answer to a request on a new connection; raise ``Lost`` or ``OSError``."""
    with Wire(port, timeout_s) as wire:
        wire.send([request.encode()])
        return wire.answer(request.method)


def compare(good: Good, answer: Answer, findings: Findings, text: str, pieces: Sequence[bytes] = ()) -> None:
    """Record whether an answer is the recorded one; a busy service may refuse."""
    if answer.same == good.answer.same:
        findings.matched()
    elif answer.status in BUSY:
        findings.turned_away()
    else:
        kind = {good.answer.status: WRONG, 500: FAULT}.get(answer.status, STATUS)
        text = f"{text} {good.request.path}: expected {_shown(good.answer)}, got {_shown(answer)}"
        findings.fail(kind, text, pieces or [good.request.encode()])


def _shown(answer: Answer) -> str:
    return f"{answer.status} {answer.content_type} {answer.body[:300]!r}"


@contextmanager
def watch(target: Target, goods: Sequence[Good], findings: Findings, seed: str) -> Iterator[None]:
    """Send good requests and probes during an attack, and measure the service before and after it."""
    stop = threading.Event()
    before, traces = (target.rss_mb(), target.files()), _traces(target)
    work = [(_witness, target, goods, findings, stop, f"{seed} {number}") for number in range(WITNESSES)]
    threads = [threading.Thread(target=function, args=given) for function, *given in work]
    threads.append(threading.Thread(target=_pulse, args=(target, findings, stop)))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        time.sleep(QUIET_S)
        findings.rss_mb, findings.files = zip(before, (target.rss_mb(), target.files()), strict=True)
    target.find_crashes(findings)
    target.find_log_tracebacks(findings)
    if target.is_alive():
        find_growth(findings, max(1, len(target.workers())), max(0, _traces(target) - traces))
    if goods and not findings.compared:
        findings.fail(LOST, "no good answer was compared")


def _traces(target: Target) -> int:
    try:
        return json.loads(ask(target.port, Request("GET", "/health/ready"), 10.0).body).get("traces", 0)
    except (Lost, OSError, ValueError):
        return 0


def _witness(target: Target, goods: Sequence[Good], findings: Findings, stop: threading.Event, seed: str) -> None:
    turn = iter(lambda: random.Random(seed).sample(goods, len(goods)), None)
    endless = itertools.chain.from_iterable(turn)
    while goods and not stop.is_set() and target.is_alive():
        try:
            with Wire(target.port, ANSWER_S) as wire:
                for good in itertools.islice(endless, ON_ONE_CONNECTION):
                    if stop.is_set():
                        return
                    findings.sent()
                    wire.send([good.request.encode()])
                    answer = wire.answer(good.request.method)
                    compare(good, answer, findings, "a good request,")
                    if answer.is_last:
                        break
                    time.sleep(PACE_S)
        except (Lost, OSError) as error:
            findings.fail(LOST, f"a good request was not answered: {type(error).__name__} {error}")
            time.sleep(PULSE_S)


def _pulse(target: Target, findings: Findings, stop: threading.Event) -> None:
    """Request ``/health/live`` several times a second; record those that are slow."""
    while not stop.wait(PULSE_S) and target.is_alive():
        began = time.monotonic()
        try:
            status = ask(target.port, Request("GET", "/health/live"), 2 * LIVE_S).status
        except (Lost, OSError) as error:
            findings.fail(STALL, f"GET /health/live: {type(error).__name__} {error}")
            continue
        findings.live(took := time.monotonic() - began)
        if took > LIVE_S or status != 200:
            findings.fail(STALL, f"GET /health/live: {status} after {took:.1f} s, {LIVE_S:g} s allowed")
