"""``make replay REV=...``: send the same requests to another version and to this one, and compare their answers.

Both versions run at the same time, each from its own checkout (``benchmarks.checkouts``). They get every request three
times: by then the fast path takes those that it can. Status, headers and body must be the same, byte for byte, but for
ids, dates, versions and measured times. The exit status is 1 after any difference; ``build/replay`` has all of them.
"""

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx
from rich.console import Console
from rich.progress import track

from benchmarks.checkouts import here, of
from benchmarks.commit import ROOT, last_release
from benchmarks.processes import HOST, Server, exit_on_sigterm
from tests.hostile.requests import Request
from tests.hostile.wire import Answer, Lost, Wire
from tests.replay.drawing import requests_for

FOLDER = ROOT / "build" / "replay"
TIMES, ANSWER_S, SHOWN = 3, 120.0, 12
# What two services of one version answer differently.
MASKED = re.compile(
    rb'"(?:seconds|ms|age_s|checked_at|version|commit|last_check)": ?(?:"[^"]*"|[-+0-9.eE]+|null|\{[^}]*\})'
)
IDS = frozenset(("date", "x-request-id", "server"))
# These show the state of the process.
PAGES = ("/metrics", "/health/", "/v1/ops", "/openapi.json")


def comparable(answer: Answer) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
    """Return what must be the same in both versions."""
    headers = tuple((name, value) for name, value in answer.headers if name.lower() not in IDS | {"content-length"})
    return answer.status, headers, MASKED.sub(b"", answer.body)


class Client:
    """A connection to a service, which is opened again when the service closes it."""

    def __init__(self, port: int) -> None:
        self._port, self._wire = port, Wire(port, ANSWER_S)

    def ask(self, request: Request) -> tuple[object, ...]:
        """Return what must be the same of the answer to a request, or how the connection ended."""
        try:
            self._wire.send([request.encode()])
            answer = self._wire.answer(request.method)
        except (Lost, OSError) as error:
            self._reconnect()
            return (type(error).__name__,)
        if answer.is_last:
            self._reconnect()
        return comparable(answer)

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    def _reconnect(self) -> None:
        self._wire.close()
        self._wire = Wire(self._port, ANSWER_S)


def compare(ports: Sequence[int], requests: Sequence[Request], console: Console) -> list[tuple[Request, list[object]]]:
    """Send each request ``TIMES`` times to each port, and return those whose answers differ, with the first ones."""
    found: list[tuple[Request, list[object]]] = []
    with ThreadPoolExecutor(len(ports)) as threads, ExitStack() as stack:
        clients = [stack.enter_context(closing(Client(port))) for port in ports]
        for request in track(requests, console=console, description="requests"):
            for _ in range(TIMES):
                answers = list(threads.map(lambda client, request=request: client.ask(request), clients))
                if answers[0] != answers[1]:
                    found.append((request, answers))
                    break
    return found


def report(console: Console, differences: Sequence[tuple[Request, list[object]]], count: int) -> None:
    """Print the first differences, and write all of them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "differences.txt").open("w") as page:
        for request, answers in differences:
            page.write(f"{request.encode()[:4000]!r}\n" + "".join(f"  {answer!r}\n" for answer in answers) + "\n")
    for request, answers in differences[:SHOWN]:
        console.print(f"{request.method} {request.path} {request.body[:200]!r}", markup=False)
        for whose, answer in zip(("other", "this"), answers, strict=True):
            console.print(f"  {whose}: {str(answer)[:400]}", markup=False)
    kinds = Counter(request.path.rpartition("/")[2] for request, _ in differences)
    named = ", ".join(f"{kind} {number}" for kind, number in kinds.most_common(10))
    console.print(f"{len(differences)} of {count} requests differ" + (f": {named}" if named else ""), highlight=False)


def main() -> int:
    """Start both versions, send the requests, print the differences and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description="Compare the answers of two versions.")
    parser.add_argument(
        "revision", nargs="?", default=last_release(), help="the other version: a commit, tag or branch"
    )
    parser.add_argument("--requests", type=int, default=20_000, help="how many requests")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="determines the damaged requests")
    parser.add_argument("--only", default="", metavar="TEXT", help="requests with this text in their path")
    given, console = parser.parse_args(), Console(width=None if sys.stdout.isatty() else 120)
    exit_on_sigterm()
    checkouts = of(given.revision), here()
    with ExitStack() as stack:
        servers = [stack.enter_context(Server("pullback", each.root, each.python)) for each in checkouts]
        with httpx.Client(base_url=f"http://{HOST}:{servers[0].port}", timeout=ANSWER_S) as client:
            requests = requests_for(client, given.requests, given.seed)
        requests = [each for each in requests if given.only in each.path and not each.path.startswith(PAGES[:2])]
        console.print(f"{len(requests)} requests with --seed {given.seed}, {checkouts[0].commit} against this version")
        differences = compare([server.port for server in servers], requests, console)
    report(console, differences, len(requests))
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
