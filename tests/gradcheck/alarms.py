"""``python -m tests.gradcheck.alarms 5 chirp scales``: check hard ops with 5 seeds, and print each false alarm.

Arguments after the number name ops, or kinds of ops; without them, all are checked.

An alarm is deserved if the op's own answer is off from the true one by more than rounding. The last number of a line
says how far the op is off at all points of the check, in units of what rounding explains: see ``hardness.off``.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from app.errors import PullbackError
from app.gradcheck.report import Step, steps
from app.gradcheck.target import Options, Target
from app.tensors.json import decode
from tests.gradcheck.checking import CPU
from tests.gradcheck.hard import HARD, MODULES
from tests.gradcheck.hard.exact import Hard, Where, off


def alarms(hard: Hard, seed: int, checks: Sequence[str] | None, modes: Any) -> Iterator[dict[str, Any]]:
    """Yield the entry of each check that fails, with ``off``, by key of the values."""
    result, todo = steps(hard.op, Options(CPU, seed=seed, modes=modes), decode, checks=checks)
    for step in todo:
        step.run(lambda: None)
    known: dict[tuple[int, str], str] = {}
    for entry in result.document()["checks"]:
        if entry["verdict"] == "fail":
            step = _step_of(todo, entry)
            place = id(step.target), str(entry["dtype"])
            known[place] = known[place] if place in known else _off(hard, step, place[1])
            yield {**entry, "off": known[place]}


def _step_of(todo: Sequence[Step], entry: dict[str, Any]) -> Step:
    return next(step for step in todo if dict(step.target.attrs) == entry["attrs"])


def _off(hard: Hard, step: Step, dtype: str) -> str:
    if hard.exact is None:
        return "unknown"
    try:
        return _worst_off(hard, step.target, dtype)
    except PullbackError as error:
        return f"unknown: {error}"


def _worst_off(hard: Hard, target: Target, dtype: str) -> str:
    worst: dict[str, float] = {}
    for sample in target.subsamples:
        narrow = target.in_dtype(sample, dtype or target.widest)
        if narrow is None:
            continue
        attrs = narrow.point.spec.attrs.model_dump()
        where = Where(narrow.point.inputs, narrow.cotangents, narrow.vectors, attrs)
        for (what, name), ratio in off(hard, where, narrow.values, dtype or target.widest).items():
            key = f"{what}/{name}"
            worst[key] = max(worst.get(key, 0.0), float(np.max(ratio, initial=0.0)))
    return ", ".join(f"{key} {ratio:.2g}" for key, ratio in worst.items())


def main(arguments: argparse.Namespace) -> int:
    """Print the alarms, and return how many there are."""
    kinds = {module.__name__.rpartition(".")[2]: list(module.OPS) for module in MODULES}
    modes, total = (None if arguments.all_modes else ("graph",)), 0
    for name in [op for given in arguments.names or kinds for op in kinds.get(given, [given])]:
        for seed in range(arguments.seeds):
            for entry in alarms(HARD[name], seed, None, modes):
                total += 1
                place = (
                    f"{entry['check']} order {entry['order']} {entry['mode']} {entry['dtype']} {entry['attrs'] or ''}"
                )
                print(f"{name}, seed {seed}, {place}: {entry['sentence']} | off: {entry['off']}", flush=True)
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Check hard ops, and print each false alarm.")
    parser.add_argument("seeds", type=int, help="how many seeds, from 0")
    parser.add_argument("names", nargs="*", help="ops, or kinds of ops; all, if there are none")
    parser.add_argument("--all-modes", action="store_true", help="also check modes eager, xla and v1")
    sys.exit(1 if main(parser.parse_args()) else 0)
