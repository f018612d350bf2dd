"""Two services side by side: every request goes to one with the fast path and to one without it."""

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.conftest import Service
from tests.fast_path.wire import Answer, Wire

GET = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"
TAKEN = b"\npullback_express_requests_total "
# After how many like requests there is a template, and after how many at most on a busy machine.
REPEATS, PATIENCE = 8, 200
# How many connections may be about to end: a service that has refused a request waits before it closes.
ENDING = 256
Requests = Callable[[int], bytes]
"""Returns one request of a loop: they differ only in their numbers, which depend on the count."""


class Both:
    """A connection to each service, opened again after its end."""

    def __init__(self, fast: Service, general: Service) -> None:
        self.services = fast, general
        self._wires: list[Wire] = []
        self._ending = deque[Wire]()
        self._scrape = Wire(fast.port)

    def close(self) -> None:
        """Close all connections, those last that the services must end."""
        for wire in (*self._wires, self._scrape):
            wire.socket.close()
        self._wires = []
        self._see_ends(0)

    def _see_ends(self, left: int) -> None:
        """Wait until the services have ended all connections but so many, the oldest first."""
        while len(self._ending) > left:
            with self._ending.popleft() as wire:
                wire.rest()

    def same(self, *requests: bytes) -> list[Answer]:
        """Send each request to both services, one at a time; return the answers, which must be the same."""
        return [self.exchange(request)[0] for request in requests]

    def exchange(self, *pieces: bytes, count: int = 1, pause_s: float = 0.0) -> list[Answer]:
        """Send the pieces of ``count`` requests to both services; return the answers, which must be the same."""
        if not self._wires:
            self._wires = [Wire(service.port) for service in self.services]
        for wire in self._wires:
            wire.send(*pieces, pause_s=pause_s)
        fast, general = (wire.answers(count) for wire in self._wires)
        assert fast == general, b"".join(pieces)[:2000]
        if general[-1].is_last:
            self._ending += self._wires
            self._wires = []
            self._see_ends(ENDING)
        return general

    def on_new(self, *pieces: bytes, pause_s: float = 0.0, half_close: bool = False) -> bytes:
        """Send the pieces on separate connections until the end; return all answers, which must be the same."""
        found: list[list[Answer]] = []
        for service in self.services:
            with Wire(service.port) as wire:
                try:
                    wire.send(*pieces, pause_s=pause_s)
                    if half_close:
                        # A service that has not read everything by then need not answer it.
                        time.sleep(0.1)
                        wire.socket.shutdown(socket.SHUT_WR)
                except OSError:  # it has closed the connection
                    pass
                answers = [wire.answer()]
                while not answers[-1].is_last:
                    answers.append(wire.answer())
                found.append(answers)
        assert found[0] == found[1], b"".join(pieces)[:2000]
        return b"".join(head + body for head, body in found[1])

    def ids(self) -> list[bytes]:
        """Return the request id in the last answer of each service."""
        return [wire.ids[-1] for wire in self._wires]

    def taken(self) -> int:
        """Return how many requests the fast path has answered."""
        return metric(self._scrape, TAKEN)

    def batches(self, op: str, operation: str) -> int:
        """Return how many calls of TensorFlow have answered requests for an operation."""
        return metric(self._scrape, f'\npullback_batch_size_count{{op="{op}",operation="{operation}"}} '.encode())

    @contextmanager
    def takes(self, least: int, most: int | None = None) -> Iterator[None]:
        """Expect that the fast path answers so many of the requests in the block."""
        before = self.taken()
        yield
        taken = self.taken() - before
        assert least <= taken <= (taken if most is None else most), f"it took {taken} requests"

    def warm(self, requests: Requests) -> list[Answer]:
        """Send requests until the fast path takes them, which a busy machine may delay; return the answers."""
        answers, before = self.repeat(requests), self.taken()
        while self.taken() == before:
            assert len(answers) < PATIENCE, "the fast path does not take this request"
            answers += self.same(requests(len(answers)))
        return answers

    def repeat(self, requests: Requests) -> list[Answer]:
        """Send as many like requests as a template needs."""
        return self.same(*(requests(number) for number in range(REPEATS)))


def metric(wire: Wire, name: bytes) -> int:
    """Return a metric of the service, whose name stands between the end of a line and a space; 0 if it has none."""
    wire.send(GET % b"/metrics")
    return int(float(wire.answer().body.partition(name)[2].split(b"\n", 1)[0] or 0))


def requests_of(make: Callable[..., bytes], *rows: Sequence[float]) -> Requests:
    """Return requests whose rows of numbers differ in each."""
    return lambda number: make(*([value * (1 + 0.125 * number) for value in row] for row in rows))
