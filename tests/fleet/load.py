"""Load that compares every answer, bit for bit, with that of one quiet process; it never sends a request again."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from tests.patience import PATIENCE_S

HOST = "127.0.0.1"
LIMIT, LIMIT_S = 200_000, 300.0
ANSWER_LIMIT = 1 << 22


@dataclass(frozen=True)
class Answer:
    """The status and the body of an answer, and the headers in lower case."""

    status: int
    body: bytes
    headers: bytes = field(default=b"", compare=False)


@dataclass(frozen=True)
class Case:
    """A request in bytes, and the only right answer."""

    request: bytes
    answer: Answer


class Connection:
    """A kept connection, opened when it is needed."""

    def __init__(self, port: int, host: str = HOST) -> None:
        self._address = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> Answer:
        """Return the answer; raises ``OSError`` or ``EOFError`` if there is none."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, limit=ANSWER_LIMIT)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
        answer = Answer(int(head.split(b" ", 2)[1]), await reader.readexactly(length), head)
        if b"connection: close" in head:
            self.close()
        return answer

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
        self._streams = None


class Load:
    """Requests on so many connections, from a thread, until the end of the context; bounded in number and time.

    ``pace_s`` is the time between two requests of a connection, at least; 0: the next follows the answer.
    ``may_refuse``: whether 503 with Retry-After is right too.
    """

    def __init__(
        self,
        port: int,
        cases: Sequence[Case],
        connections: int,
        pace_s: float = 0.0,
        *,
        may_refuse: bool = False,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._port, self._cases, self._connections = port, cases, connections
        self._pace_s, self._may_refuse, self._limit_s = pace_s, may_refuse, limit_s
        self.statuses, self.failures = Counter[int](), list[str]()
        self.latencies_s, self.seconds = list[float](), 0.0
        self._sent, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        self.seconds = time.monotonic() - self._began

    @property
    def answered(self) -> int:
        return sum(self.statuses.values())

    def wait_for(self, more: int) -> None:
        """Wait for so many more answers."""
        until, count = time.monotonic() + PATIENCE_S, self.answered + more
        while self.answered < count:
            assert time.monotonic() < until
            assert not self._stop.wait(0.02)

    def percentile_s(self, share: float) -> float:
        """Return a percentile of the latencies of right answers."""
        ordered = sorted(self.latencies_s)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._connections):
                group.create_task(self._send(number))

    def _goes_on(self) -> bool:
        return not self._stop.is_set() and self._sent < LIMIT and time.monotonic() < self._began + self._limit_s

    async def _send(self, number: int) -> None:
        connection = Connection(self._port)
        # Connections with a pace begin one after the other.
        due = time.monotonic() + self._pace_s * number / self._connections
        while self._goes_on():
            if (wait_s := due - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            due = max(due + self._pace_s, time.monotonic() - self._pace_s)
            self._sent += 1
            case, began = self._cases[self._sent % len(self._cases)], time.monotonic()
            try:
                answer = await asyncio.wait_for(connection.ask(case.request), PATIENCE_S)
            except (OSError, EOFError, TimeoutError, IndexError, ValueError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                connection.close()
                continue
            self._judge(case, answer, time.monotonic() - began)
        connection.close()

    def _judge(self, case: Case, answer: Answer, seconds: float) -> None:
        self.statuses[answer.status] += 1
        if answer == case.answer:
            self.latencies_s.append(seconds)
        elif not (self._may_refuse and answer.status == 503 and b"\r\nretry-after: " in answer.headers):
            self.failures.append(f"{answer.status} {answer.body[:200]!r} in place of {case.answer}"[:600])


def recorded(port: int, requests: Sequence[bytes], host: str = HOST) -> list[Case]:
    """Return the requests with the answers that a quiet process gives to one after the other."""

    async def run() -> list[Case]:
        connection = Connection(port, host)
        cases = [Case(request, await connection.ask(request)) for request in requests]
        connection.close()
        return cases

    return asyncio.run(run())
