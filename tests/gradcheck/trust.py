"""``python -m tests.gradcheck.trust --seeds 20``: how far the verdicts of the checker can be trusted.

It checks every wrong op, which a check that is meant to must fail, and every right one, the registered ops among them,
with many seeds, where no check may fail. It prints each miss and each alarm as it finds them, and a table at the end;
Ctrl-C ends it early, with the table of the ops so far.

An alarm is deserved if the op's own answer is off from the true one, in 60 digits, by more than rounding explains.
"""

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np

from app.errors import PullbackError
from app.gradcheck.checks import CHECKS
from app.gradcheck.options import Options
from app.gradcheck.report import Step
from app.gradcheck.target import Target
from ops import Op, discover
from tests.gradcheck.checking import CPU, planned
from tests.gradcheck.hard import HARD
from tests.gradcheck.hard.exact import Hard, Where, off
from tests.gradcheck.wrong import WRONG

# Checks whose alarm is about both the values and the gradients, and the values that belong to an order.
OF_ORDER = {0: ("outputs",), 1: ("gradients",), 2: ("products", "slots"), None: ("outputs", "gradients")}
# How far off, in units of what rounding explains, an answer must be to deserve an alarm.
DESERVED = 32.0


@dataclass
class Tally:
    """What happened, by check; ``runs`` counts the checks of one op with one seed."""

    caught: Counter[str] = field(default_factory=Counter[str])
    missed: Counter[str] = field(default_factory=Counter[str])
    deserved: Counter[str] = field(default_factory=Counter[str])
    undeserved: Counter[str] = field(default_factory=Counter[str])
    inconclusive: Counter[str] = field(default_factory=Counter[str])
    runs: Counter[str] = field(default_factory=Counter[str])
    lines: list[str] = field(default_factory=list[str])

    def add(self, other: "Tally") -> None:
        """Add what another one counted and found."""
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                getattr(self, name).update(value)
        self.lines += other.lines

    def table(self) -> Iterator[str]:
        """Yield the lines of a table, one for each check."""
        columns = ("runs", "caught", "missed", "undeserved", "deserved", "inconclusive")
        yield "check        " + "".join(f"{column:>14}" for column in columns)
        for check in (*CHECKS, "all"):
            counts = [getattr(self, column) for column in columns]
            yield f"{check:<13}" + "".join(f"{c.total() if check == 'all' else c[check]:>14}" for c in counts)


def of_wrong(name: str, seed: int) -> Tally:
    """Check a wrong op."""
    planted, tally = WRONG[name], Tally()
    document, _ = _checked(planted.op, seed)
    failed = [entry for entry in document["checks"] if entry["verdict"] == "fail"]
    meant = [entry for entry in failed if entry["check"] in planted.checks and planted.words in entry["sentence"]]
    if meant:
        tally.caught[meant[0]["check"]] += 1
    else:
        tally.missed[planted.checks[0]] += 1
        others = ", ".join(sorted({entry["check"] for entry in failed})) or "no check"
        tally.lines.append(f"MISSED {name}, seed {seed}: {others} fails, expected {' or '.join(planted.checks)}")
    return tally


def of_right(name: str, seed: int) -> Tally:
    """Check a right op."""
    hard = HARD[name] if name in HARD else Hard(discover().ops[name])
    tally = Tally()
    document, todo = _checked(hard.op, seed)
    tally.runs.update(sorted({entry["check"] for entry in document["checks"] if entry["verdict"] != "skipped"}))
    for entry in document["checks"]:
        if entry["verdict"] == "inconclusive":
            tally.inconclusive[entry["check"]] += 1
        elif entry["verdict"] in ("fail", "error"):
            is_deserved = entry["verdict"] == "fail" and _is_deserved(hard, todo, entry)
            (tally.deserved if is_deserved else tally.undeserved)[entry["check"]] += 1
            what = "deserved" if is_deserved else "UNDESERVED"
            tally.lines.append(f"{what} {name}, seed {seed}, {entry['check']} {entry['attrs']}: {entry['sentence']}")
    return tally


def _checked(op: Op, seed: int) -> tuple[dict[str, Any], list[Step]]:
    report, todo = planned(op, Options(CPU, seed=seed))
    for step in todo:
        step.run(lambda: None)
    return report.document(), todo


def _is_deserved(hard: Hard, todo: Sequence[Step], entry: dict[str, Any]) -> bool:
    if hard.exact is None:
        return False
    target = next(step.target for step in todo if dict(step.target.attrs) == entry["attrs"])
    return _worst(hard, target, entry) > DESERVED


def _worst(hard: Hard, target: Target, entry: dict[str, Any]) -> float:
    """Return how far an answer that an entry is about is off, in units of what rounding explains: enough to judge."""
    worst, dtype, kinds = 0.0, entry["dtype"] or target.widest, OF_ORDER[entry["order"]]
    for sample in (*target.special_samples, *target.subsamples):
        if (narrow := target.in_dtype(sample, dtype)) is None:
            continue
        attrs = narrow.point.spec.attrs.model_dump()
        where = Where(narrow.point.inputs, narrow.cotangents, narrow.vectors, attrs)
        try:
            ratios = off(hard, where, narrow.in_mode(entry["mode"], target.options.device).values, dtype, kinds)
        except (PullbackError, ValueError, ZeroDivisionError):
            continue  # Neither the op nor mpmath needs to have a value at a special point.
        worst = max(worst, *(float(np.max(ratio, initial=0.0)) for ratio in ratios.values()))
        if worst > DESERVED:
            break
    return worst


def _one(task: tuple[str, str, Sequence[int]]) -> Tally:
    """Check one op with some seeds: all but the first use the traces of the first, which take most of the time."""
    kind, name, seeds = task
    tally = Tally()
    for seed in seeds:
        tally.add(of_wrong(name, seed) if kind == "wrong" else of_right(name, seed))
    return tally


def main(arguments: argparse.Namespace) -> int:
    """Print what is found; return 1 if a fault was missed, or an alarm undeserved, or if it was interrupted."""
    right = [*HARD, *discover().ops]
    names = [("wrong", name) for name in WRONG] + [("right", name) for name in right]
    chosen = [(kind, name) for kind, name in names if not arguments.names or name in arguments.names]
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    tasks = [(kind, name, seeds) for kind, name in chosen]
    total, done = Tally(), 0
    # TensorFlow keeps the memory of each trace. (A ProcessPoolExecutor may hang when it replaces its processes.)
    with (
        get_context("spawn").Pool(arguments.processes, _leave_interrupts, maxtasksperchild=20) as pool,
        suppress(KeyboardInterrupt),
    ):
        for tally in pool.imap(_one, tasks):
            done += 1
            total.add(tally)
            for line in tally.lines:
                print(line, flush=True)
            if done % 10 == 0:
                print(f"{done} of {len(tasks)} ops", file=sys.stderr, flush=True)
    print(f"{done} of {len(tasks)} ops, {arguments.seeds} seeds each", *total.table(), sep="\n")
    return 1 if total.missed or total.undeserved or done < len(tasks) else 0


def _leave_interrupts() -> None:
    """Leave Ctrl-C, which reaches every process of a terminal, to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure misses and false alarms of the checker.")
    parser.add_argument("names", nargs="*", help="ops; all, if there are none")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many processes")
    sys.exit(main(parser.parse_args()))
