"""Slow clients: slow heads, slow bodies, answers that nobody reads, and connections that a stray CRLF keeps open."""

import contextlib
import threading
import time

from tests.hostile.findings import STALL
from tests.hostile.requests import post
from tests.hostile.stage import Stage
from tests.hostile.wire import Lost, Wire
from tests.hostile.witness import ask, watch

OF_EACH_KIND = 12
STEP_S = 0.4
# A head must end within 20 s, and an idle connection within 75 s; the rest is patience.
HEAD_S, IDLE_S = 30.0, 90.0
# An answer of about 10 MiB; several of them fill every buffer on the way.
LARGE = post("/v1/ops/square/forward", {"inputs": {"x": [1.2345678] * 500_000}})
UNREAD = 3
SMALL_BUFFER = 4096
SMALL = post("/v1/ops/square/forward", {"inputs": {"x": [1.0]}})


def attack(stage: Stage) -> None:
    """Hold slow connections of every kind until the time is over, then look which the service has closed."""
    end = time.monotonic() + stage.seconds
    # The first large answer grows the allocator's buffers.
    ask(stage.target.port, LARGE)
    kinds = (_slow_head, _slow_body, _unread, _stray_crlf)
    with watch(stage.target, stage.goods, stage.findings, stage.seed):
        threads = [threading.Thread(target=kind, args=(stage, end)) for kind in kinds for _ in range(OF_EACH_KIND)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _slow_head(stage: Stage, end: float) -> None:
    _drip(stage, end, SMALL.head("x-slow: " + "s" * 100_000), HEAD_S, "a head that does not end")


def _slow_body(stage: Stage, end: float) -> None:
    # The deadline of the request bounds its body.
    _drip(stage, end, SMALL.head("content-length: 1000000") + b" " * 100_000, HEAD_S, "a body that does not end")


def _drip(stage: Stage, end: float, data: bytes, allowed_s: float, what: str) -> None:
    """Send a byte at a time after the first 100; record a connection that lives longer than allowed."""
    stage.findings.sent()
    began = time.monotonic()
    with contextlib.suppress(OSError), Wire(stage.target.port, STEP_S) as wire:
        wire.send([data[:100]])
        for place in range(100, len(data)):
            if time.monotonic() > end:
                return
            if time.monotonic() > began + allowed_s:
                stage.findings.fail(STALL, f"{what} holds its connection for more than {allowed_s:g} s", [data[:place]])
                return
            wire.send([data[place : place + 1]])
            if _is_closed(wire):
                return
            time.sleep(STEP_S)


def _unread(stage: Stage, end: float) -> None:
    """Request large answers and read none."""
    stage.findings.sent(UNREAD)
    with contextlib.suppress(OSError), Wire(stage.target.port, 2.0, SMALL_BUFFER) as wire:
        wire.send([LARGE.encode()] * UNREAD)
        time.sleep(max(0.0, end - time.monotonic()))


def _stray_crlf(stage: Stage, end: float) -> None:
    """Send CRLF after an answer: the connection must still be closed when it has been idle."""
    stage.findings.sent()
    with contextlib.suppress(OSError, Lost), Wire(stage.target.port, IDLE_S) as wire:
        wire.send([SMALL.encode()])
        wire.answer()
        wire.send([b"\r\n"])
        began = time.monotonic()
        wire.socket.settimeout(min(IDLE_S, max(0.1, end - began)))
        try:
            wire.socket.recv(1000)
        except TimeoutError:
            if time.monotonic() >= began + IDLE_S:
                stage.findings.fail(STALL, f"an idle connection is open {IDLE_S:g} s after a stray CRLF")


def _is_closed(wire: Wire) -> bool:
    wire.socket.settimeout(0.001)
    try:
        return not wire.socket.recv(65536)
    except TimeoutError:
        return False
    finally:
        wire.socket.settimeout(STEP_S)
