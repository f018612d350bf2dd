"""A closed loop of large requests: ``python -m benchmarks.sockets PORT FILE CONNECTIONS SECONDS COUNT``.

Each connection is a thread that sends a request of the file, waits for the whole response and takes the next one. All
bytes pass through one preallocated buffer. The module has only light imports, and prints JSON.
"""

import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HOST = "127.0.0.1"
TIMEOUT_S = 60.0
CHUNK = 1 << 20
HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"
REFUSED, NO_ANSWER = 400, 0


class Answer(NamedTuple):
    """The times at which a request was sent and answered, and its status."""

    began: float
    ended: float
    status: int


def requests(path: Path) -> list[bytes]:
    """Return the requests in a file, each preceded by its length in 8 bytes."""
    content, start, found = path.read_bytes(), 0, list[bytes]()
    while start < len(content):
        size = int.from_bytes(content[start : start + 8], "little")
        found.append(content[start + 8 : start + 8 + size])
        start += 8 + size
    return found


def exchange(connection: socket.socket, request: bytes, buffer: memoryview) -> int:
    """Send a request, read its whole response, and return the status."""
    connection.sendall(request)
    head = b""
    while HEAD_END not in head:
        size = connection.recv_into(buffer)
        if not size:
            raise ConnectionError("expected an answer, got the end of the connection")
        head += bytes(buffer[:size])
    lines, _, rest = head.partition(HEAD_END)
    left = _length(lines) - len(rest)
    while left > 0:
        size = connection.recv_into(buffer)
        if not size:
            raise ConnectionError("expected the rest of an answer, got the end of the connection")
        left -= size
    return int(lines[9:12])


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(LENGTH):
            return int(line[len(LENGTH) :])
    raise ConnectionError("expected Content-Length, got an answer without")


def loop(port: int, turn: Iterator[bytes], end: float, answers: list[Answer]) -> None:
    """Send requests in turn until none are left or the time is over, and record the answers."""
    buffer = memoryview(bytearray(CHUNK))
    with socket.create_connection((HOST, port), TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in turn:
            began = time.perf_counter()
            try:
                status = exchange(connection, request, buffer)
            except OSError as error:
                print(error, file=sys.stderr)
                status = NO_ANSWER
            ended = time.perf_counter()
            answers.append(Answer(began, ended, status))
            if status == NO_ANSWER or ended > end:
                return


def summary(answers: list[Answer], start: float) -> dict[str, float]:
    """Return the fields of `load.Sample`."""
    responses = [answer for answer in answers if answer.status != NO_ANSWER]
    latencies = sorted(answer.ended - answer.began for answer in responses) or [0.0]
    return {
        "requests": len(responses),
        "seconds": max((answer.ended for answer in responses), default=start + TIMEOUT_S) - start,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
        "longest": latencies[-1],
        "refused": sum(answer.status >= REFUSED for answer in responses),
        "failed": len(answers) - len(responses),
    }


def main(port: int, path: Path, connections: int, seconds: float, count: int) -> None:
    """Run the connections, and print the results."""
    turn = itertools.islice(itertools.cycle(requests(path)), count)
    answers = list[Answer]()
    start = time.perf_counter()
    threads = [threading.Thread(target=loop, args=(port, turn, start + seconds, answers)) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(summary(answers, start)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
