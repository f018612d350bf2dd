"""SIGTERM under load: every request whose bytes arrived before the listener closed is answered.

Most clients keep their connections; some open one for each request. A client that finds its connection closed before it
has sent anything opens another, as long as the service listens.
"""

import os
import signal
import threading
import time
from collections.abc import Sequence

from tests.hostile.findings import LOST
from tests.hostile.requests import Request
from tests.hostile.stage import Stage
from tests.hostile.target import STOP_S
from tests.hostile.wire import Lost, Wire, is_listening
from tests.hostile.witness import ANSWER_S, compare

KEPT_ALIVE, FRESH = 64, 16
PROBE_S, SHORT = 0.002, 1000


def attack(stage: Stage) -> None:
    """Load the service, send SIGTERM, and count the requests that were sent in time and not answered."""
    stage.findings.rss_mb = (stage.target.rss_mb(),) * 2
    stage.findings.files = (stage.target.files(),) * 2
    clients = [_Client(stage, number) for number in range(KEPT_ALIVE + FRESH)]
    for client in clients:
        client.start()
    time.sleep(max(1.0, min(stage.seconds, 5.0)))
    os.kill(stage.target.pid, signal.SIGTERM)
    last_open = _wait_until_closed(stage.target.port)
    for client in clients:
        client.is_over.set()
    for client in clients:
        client.join()
    _find_losses(stage, clients, last_open)
    stage.target.wait_until_stopped(stage.findings)
    stage.target.find_log_tracebacks(stage.findings)


def _wait_until_closed(port: int) -> float:
    """Return when the service accepted a connection for the last time."""
    last = time.monotonic()
    end = last + STOP_S
    while (now := time.monotonic()) < end and is_listening(port):
        last = now
        time.sleep(PROBE_S)
    return last


def _find_losses(stage: Stage, clients: Sequence["_Client"], last_open: float) -> None:
    losses = [(client, loss) for client in clients for loss in client.losses if loss[0] < last_open]
    for client, (sent, text) in losses:
        kind = "kept-alive" if client.keeps_alive else "new"
        stage.findings.fail(
            LOST,
            f"a request on a {kind} connection, {(last_open - sent) * 1000:.0f} ms before the listener closed: {text}",
        )


class _Client(threading.Thread):
    """A client that sends one request after the other until the service is gone.

    ``losses`` has the times at which requests were sent that were not answered, and why.
    """

    def __init__(self, stage: Stage, number: int) -> None:
        super().__init__()
        self._stage = stage
        shorts = [good for good in stage.goods if _is_short(good.request)] or stage.goods
        self._good = shorts[number % len(shorts)]
        self.keeps_alive = number < KEPT_ALIVE
        self.is_over = threading.Event()
        self.losses: list[tuple[float, str]] = []

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                with Wire(self._stage.target.port, ANSWER_S) as wire:
                    while self._exchange(wire) and self.keeps_alive:
                        pass
            except OSError:  # It cannot connect, or nothing was sent.
                time.sleep(PROBE_S)

    def _exchange(self, wire: Wire) -> bool:
        """Send a request and read the answer; return whether the connection can be used again."""
        wire.send([self._good.request.encode()])
        sent = time.monotonic()
        self._stage.findings.sent()
        try:
            answer = wire.answer()
        except Lost as error:
            self.losses.append((sent, str(error)))
            return False
        compare(self._good, answer, self._stage.findings, "under SIGTERM,")
        return not answer.is_last and not self.is_over.is_set()


def _is_short(request: Request) -> bool:
    """Return whether a request is short work, of one of many ops: those of all clients fit into the queue."""
    return request.path.endswith(("/forward", "/vjp")) and len(request.body) < SHORT
