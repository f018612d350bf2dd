"""``python -m tests.hostile --minutes 5 --seed 1``: attack the service, and report what breaks.

It starts services on loopback and attacks them in phases (``tests/hostile/phases``): a process on its own, one whose
log nobody reads, and one with two workers and evil ops. Good requests run meanwhile; their answers are compared, bit
for bit, with those that the same service gave when it was quiet. The exit status is 1 if anything is found. With the
same seed, the cases of the fuzz are the same; ``build/hostile/`` has the bytes of each finding.
"""

import argparse
import os
import random
import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from rich.console import Console

from tests.hostile.corpus import corpus
from tests.hostile.findings import FOLDER, Findings
from tests.hostile.phases import (
    departures,
    evil_ops,
    fast,
    fuzz,
    graphs,
    jobs,
    linearizations,
    memory,
    overload,
    sigkill,
    sigterm,
    slow,
    sparsity,
    stalled_log,
)
from tests.hostile.report import progress, report
from tests.hostile.stage import Stage
from tests.hostile.target import Target
from tests.hostile.witness import Good, record

# Good requests on the services other than the first, and on a service that replaces one that crashed.
SAMPLE = 40
# A long attack has time to record the answers to more requests: two examples of each op, all of them.
LONG_MINUTES, SHORT_SAMPLE = 3, 250
# More than the service ever needs, and less than evil ops ask for.
ADDRESS_SPACE = 64 << 30
OPS = FOLDER / "ops"


@dataclass(frozen=True)
class Phase:
    """A phase: its name, its attack, the service that it attacks, its share of the time, and its least seconds."""

    name: str
    attack: Callable[[Stage], None]
    service: str
    share: float
    least_s: float = 0.0


PHASES = (
    Phase("fuzz", fuzz.attack, "one process", 0.30, 20.0),
    Phase("graphs", graphs.attack, "one process", 0.04, 6.0),
    Phase("linearizations", linearizations.attack, "one process", 0.03, 6.0),
    Phase("sparsity", sparsity.attack, "one process", 0.03, 6.0),
    Phase("fast", fast.attack, "one process", 0.05, 8.0),
    Phase("memory", memory.attack, "one process", 0.14, 20.0),
    Phase("overload", overload.attack, "one process", 0.1),
    Phase("slow clients", slow.attack, "one process", 0.12),
    Phase("departures", departures.attack, "one process", 0.06),
    Phase("jobs", jobs.attack, "one process", 0.0),
    Phase("SIGTERM", sigterm.attack, "one process", 0.02),
    Phase("stalled log", stalled_log.attack, "stalled log", 0.04),
    Phase("SIGKILL", sigkill.attack, "two workers", 0.02),
    Phase("evil ops", evil_ops.attack, "two workers", 0.08),
    Phase("SIGTERM of two", sigterm.attack, "two workers", 0.02),
)


@dataclass
class Services:
    """The services under attack, one at a time."""

    stack: ExitStack
    seed: str
    is_long: bool
    requests: Sequence = ()
    current: tuple[str, Target, Sequence[Good]] | None = None
    unread: list[int] = field(default_factory=list)

    def get(self, name: str) -> tuple[Target, Sequence[Good]]:
        """Return a service and the good requests on it; start it if another is running, or if it has crashed."""
        if self.current is None or self.current[0] != name or not self.current[1].is_alive():
            self.stack.close()
            target = self.stack.enter_context(self._start(name)).wait_until_ready()
            # What the service allocates for evil ops, and for nothing else, must fail before it fills the memory.
            for pid in target.pids():
                resource.prlimit(pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
            self.current = name, target, self._record(target)
        return self.current[1:]

    def _start(self, name: str) -> Target:
        match name:
            case "stalled log":
                unread, stderr = os.pipe()
                self.stack.callback(os.close, unread)
                return Target("stalled-log", os.fdopen(stderr, "wb", buffering=0))
            case "two workers":
                return Target("two-workers", WORKERS="2", OPS_PATH=str(OPS))
            case _:
                return Target("one-process")

    def _record(self, target: Target) -> Sequence[Good]:
        if not self.requests:
            with target.service.client() as client:
                self.requests = corpus(client, 2 if self.is_long else 1)
            if not self.is_long:
                self.requests = random.Random(self.seed).sample(self.requests, SHORT_SAMPLE)
            return record(target.port, self.requests)
        return record(target.port, random.Random(self.seed).sample(self.requests, SAMPLE))


def main() -> int:
    """Run the phases and return the exit status."""
    parser = argparse.ArgumentParser(description="Attack the service on loopback, and report what breaks.")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to attack; starts take longer")
    parser.add_argument("--seed", default=str(random.randrange(10**6)), help="determines the cases of the fuzz")
    names = [phase.name for phase in PHASES]
    parser.add_argument("--phases", nargs="+", choices=names, default=names, help="which phases, by default all")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 180)
    console.print(f"Attacking for {given.minutes:g} minutes with --seed {given.seed}; findings go to build/hostile/")
    shutil.rmtree(FOLDER, ignore_errors=True)
    evil_ops.write_plugins(OPS)
    phases = list[Findings]()
    with ExitStack() as stack:
        services = Services(stack, given.seed, given.minutes >= LONG_MINUTES)
        for phase in [phase for phase in PHASES if phase.name in given.phases]:
            phases.append(findings := Findings(phase.name))
            target, goods = services.get(phase.service)
            console.print(f"[bold]{phase.name}[/] {len(goods)} good requests, {target.rss_mb():.0f} MiB")
            seconds = max(phase.share * given.minutes * 60, phase.least_s)
            stage = Stage(target, goods, findings, seconds, given.seed)
            began = time.monotonic()
            phase.attack(stage)
            findings.seconds = time.monotonic() - began
            progress(console, findings)
    report(console, phases)
    return int(any(findings.failures for findings in phases))


if __name__ == "__main__":
    sys.exit(main())
