"""``python -m tests.rows.attack --requests 100000 --seed 1``: whether answers depend on the load.

Two services have the corpus as plug-ins: ops whose rows are independent, and ops whose rows only seem so. The reference
gets one request at a time, without the fast path, so that no two requests share a call. Its answers are the expected
ones. The service under test gets the same requests in random mixtures, 1 to 64 at a time. Status and body must be the
same, byte for byte; of errors, status, detail and entries. A third service has the same ops without their declaration,
so that it neither joins nor pads rows: its answers may differ by rounding only. The exit status is 1 after any
difference; ``build/rows`` has the bytes of the first ones.
"""

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import httpx
import numpy as np
from rich.console import Console

from ops import Op, discover
from tests.conftest import Service
from tests.rows.alone import is_close
from tests.rows.cases import Case, Kind, cases_of, comparable, kinds_of
from tests.rows.corpus import CORPUS, INDEPENDENT, SEEMING, write_pages
from tests.rows.replay import Lost, comparing, replay
from tests.rows.tallies import AGAIN, FOLDER, Tallies, Tally, count_calls, report

# Registered ops besides the corpus: some with a leading axis, and some that are elementwise.
BESIDE = ("safe_norm", "softmax_cross_entropy", "self_adjoint_eig", "clip_gradient", "log1pexp", "square")
AT_ONCE = (1, 2, 4, 8, 16, 32, 64)
# Requests can only share a call if they are of one kind, so a round has few.
ROUND, KINDS_OF_A_ROUND = 400, (1, 1, 2, 3, 5)
# While traces are made: a request may wait for those before it.
RECORDED_AT_ONCE, LIMIT_S, DEADLINE_S = 8, 600.0, "3600"
# After so many differences the attack ends.
ENOUGH = 1000


def drawn(seed: int, names: Sequence[str], kinds: int, values: int) -> list[Case]:
    """Draw ``values`` requests of each of ``kinds`` kinds of every op; only those of ``names``, if there are any."""
    known = {**CORPUS, **discover().ops}
    if unknown := set(names) - set(known):
        raise SystemExit(f"expected ops that can be loaded, got {', '.join(sorted(unknown))}")
    return drawn_of([known[name] for name in names or sorted({*CORPUS, *BESIDE})], seed, kinds, values)


def drawn_of(ops: Iterable[Op], seed: int, kinds: int, values: int) -> list[Case]:
    """Draw ``values`` requests of each of ``kinds`` kinds of some ops."""
    found = list[Case]()
    for op in ops:
        rng = np.random.default_rng([seed, *op.name.encode()])
        found += [case for kind in kinds_of(op, rng, kinds) for case in cases_of(kind, rng, values)]
    return found


def started(stack: ExitStack, name: str, pages: Path, **settings: str) -> Service:
    """Start a service with plug-ins on a free port; its log is in ``build/rows``."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    log: IO[bytes] = stack.enter_context((FOLDER / f"{name}.log").open("w+b"))
    service = Service.launched(log, OPS_PATH=str(pages), DEADLINE_S=DEADLINE_S, STRICT="1", **settings)
    stack.callback(service.close)
    return service


async def attack(
    cases: Sequence[Case],
    reference: int,
    tested: int,
    tallies: Tallies,
    *,
    requests: int,
    seed: int,
    until: float,
    alone: int | None = None,
) -> None:
    """Record the answers of the service at port ``reference``, and send ``requests`` to the one at port ``tested``.

    If there is a service at port ``alone``, its answers must be near those of the reference.
    It ends early at ``until``, in the time of ``time.monotonic``, and after ``ENOUGH`` differences.
    """
    await _record(cases, reference, tested, tallies, until)
    if alone is not None:
        await _compare_alone(cases, alone, tallies, until)
    sent = len(cases)
    for some, at_once in _rounds(cases, random.Random(seed)):
        if sent >= requests or time.monotonic() > until or tallies.differences >= ENOUGH:
            break
        await replay(tested, some[: requests - sent], at_once, comparing(tallies.add), LIMIT_S)
        sent += ROUND
        tallies.progress()
    await _ask_again(tested, tallies)


async def _record(cases: Sequence[Case], reference: int, tested: int, tallies: Tallies, until: float) -> None:
    """Ask both services every request once, each at its pace, then compare: both make the same traces meanwhile."""
    found: dict[Case, tuple[int, bytes]] = {}

    def expect(case: Case, status: int, body: bytes) -> None:
        case.expected = comparable(status, body)

    def note(case: Case, status: int, body: bytes) -> None:
        found[case] = comparable(status, body)

    limit_s = max(1.0, until - time.monotonic())
    await asyncio.gather(
        replay(reference, cases, 1, expect, limit_s), replay(tested, cases, RECORDED_AT_ONCE, note, limit_s)
    )
    for case in cases:
        tallies.add(case, found[case] == case.expected, found[case])
    tallies.progress()


async def _compare_alone(cases: Sequence[Case], alone: int, tallies: Tallies, until: float) -> None:
    def compare(case: Case, status: int, body: bytes) -> None:
        is_far = not is_close(case.expected, comparable(status, body), case.largest)
        tallies.of[case.kind.op.name].far += is_far
        tallies.differences += is_far

    await replay(alone, cases, RECORDED_AT_ONCE, compare, max(1.0, until - time.monotonic()))


def _rounds(cases: Sequence[Case], chance: random.Random) -> Iterator[tuple[list[Case], int]]:
    """Yield the requests of a round, and how many to send at a time: all kinds take part before one does so again."""
    of: dict[Kind, list[Case]] = {}
    for case in cases:
        of.setdefault(case.kind, []).append(case)
    kinds = itertools.chain.from_iterable(iter(lambda: chance.sample(list(of), len(of)), None))
    while True:
        pool = [case for kind in itertools.islice(kinds, chance.choice(KINDS_OF_A_ROUND)) for case in of[kind]]
        yield chance.choices(pool, k=ROUND), chance.choice(AT_ONCE)


async def _ask_again(tested: int, tallies: Tallies) -> None:
    """Ask some of the requests that differ again, one at a time: those that differ then do not depend on the load."""
    for tally in tallies.of.values():

        def count(case: Case, is_right: bool, found: tuple[int, bytes], tally: Tally = tally) -> None:
            del case, found
            tally.also_alone += not is_right

        await replay(tested, [case for case, _ in tally.differences[:AGAIN]], 1, comparing(count), LIMIT_S)


def run(given: argparse.Namespace, console: Console) -> int:
    """Start the services, run the attack, print the report, and return the exit status."""
    until, status = time.monotonic() + 60 * given.minutes, 0
    with ExitStack() as stack:
        # Neither warms up: which traces there are must not depend on time.
        pages, alone_pages = write_pages(FOLDER / "pages"), write_pages(FOLDER / "alone", corpus="ALONE")
        services = [
            started(stack, "reference", pages, EXPRESS="0"),
            started(stack, "tested", pages),
            started(stack, "unjoined", alone_pages, EXPRESS="0"),
        ]
        cases = drawn(given.seed, given.ops, given.kinds, given.values)
        console.print(f"{len(cases)} distinct requests with --seed {given.seed}; logs and findings go to build/rows/")
        reference, tested, alone = (service.wait_until_ready() for service in services)
        tallies, began = Tallies(console, given.requests), time.monotonic()
        bounds = {"requests": given.requests, "seed": given.seed, "until": until, "alone": alone.port}
        try:
            asyncio.run(attack(cases, reference.port, tested.port, tallies, **bounds))
            count_calls(tested.url, tallies)
        except (Lost, OSError, httpx.HTTPError) as error:
            console.print(f"[red]The attack ended early: {error}[/]")
            status = 1
        console.print(f"{tallies.requests} requests in {time.monotonic() - began:.0f} s", highlight=False)
    report(console, tallies, dict.fromkeys(INDEPENDENT, "independent") | dict.fromkeys(SEEMING, "seeming"))
    return int(status or tallies.differences > 0)


def main() -> int:
    """Read the arguments, run the attack and return the exit status."""
    parser = argparse.ArgumentParser(description="Compare answers under load with those of a service without load.")
    parser.add_argument("--requests", type=int, default=100_000, help="how many to send, the recorded ones included")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="determines the requests")
    parser.add_argument("--kinds", type=int, default=6, help="kinds of requests of each op; each makes a trace")
    parser.add_argument("--values", type=int, default=12, help="distinct requests of each kind")
    parser.add_argument("--minutes", type=float, default=30.0, help="when to end at the latest")
    parser.add_argument("--ops", nargs="+", default=[], help="which ops, by default all of the corpus and some others")
    for path in FOLDER.glob("[0-9][0-9].*") if FOLDER.is_dir() else ():
        path.unlink()
    return run(parser.parse_args(), Console(width=None if sys.stdout.isatty() else 120))


if __name__ == "__main__":
    sys.exit(main())
