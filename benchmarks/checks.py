"""What it costs to check ops, beside another version: ``make bench-checks REV=...``.

Both versions check the ops of this one, a few at a time and in turn, as an author does: ``pullback check FILE...``. The
figure is the CPU time of the command and of its processes, in seconds: other load on the machine adds little to it.
``--only`` takes some of the ops. The exit status is 1 if a verdict differs from that of the other version.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from benchmarks.checkouts import Checkout, here, of
from benchmarks.commit import last_release
from benchmarks.pages import table
from benchmarks.processes import ROOT, environment, exit_on_sigterm
from benchmarks.results import machine

AT_ONCE = 6
SEED = "0"
PR_SET_CHILD_SUBREAPER = 36


class Run(NamedTuple):
    """The CPU and the wall seconds of a command, and the verdict on each op."""

    cpu_s: float
    wall_s: float
    verdicts: dict[str, str]


def check(checkout: Checkout, ops: Sequence[str]) -> Run:
    """Check the pages of a checkout; raise ``SystemExit`` if there is no report."""
    pages = [str(checkout.root / "ops" / f"{op}.py") for op in ops]
    command = [checkout.python, "-m", "pullback", "check", *pages, "--seed", SEED, "--quiet", "--json", "-"]
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(command, cwd=checkout.root, env=environment(), stdout=subprocess.PIPE, check=False)
    wall_s = time.perf_counter() - began
    reap()
    after = os.times()
    try:
        reports = json.loads(done.stdout)["reports"]
    except ValueError:
        raise SystemExit(f"`pullback check` of {checkout.commit} gave no report of {', '.join(ops)}.") from None
    cpu_s = after.children_user - before.children_user + after.children_system - before.children_system
    return Run(cpu_s, wall_s, {report["op"]: report["verdict"] for report in reports})


def adopt() -> None:
    """Become the parent of what a command leaves behind: the time of a process counts only when it is waited for."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise SystemExit(f"Expected to adopt processes, got {os.strerror(ctypes.get_errno())}.")


def reap() -> None:
    """Wait for all of them."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def groups(ops: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the ops, a few at a time: an import of TensorFlow takes as long as the check of an op."""
    for start in range(0, len(ops), AT_ONCE):
        yield ops[start : start + AT_ONCE]


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 1 if a verdict differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", help="a commit, a tag or a branch; the last release by default")
    parser.add_argument("--only", default="", help="the ops, with commas")
    options = parser.parse_args(arguments)
    exit_on_sigterm()
    adopt()
    old, new = of(options.revision or last_release()), here()
    names = sorted(path.stem for path in (ROOT / "ops").glob("[a-z]*.py"))
    asked = options.only.split(",") if options.only else names
    if unknown := set(asked) - set(names):
        raise SystemExit(f"Expected ops of {', '.join(names)}, got {', '.join(sorted(unknown))}.")
    rows, totals, differ = list[Sequence[str]](), [0.0, 0.0], list[str]()
    for some in groups(asked):
        before, now = check(old, some), check(new, some)
        totals = [totals[0] + before.cpu_s, totals[1] + now.cpu_s]
        rows.append(_row(", ".join(some), before.cpu_s, now.cpu_s, f"{before.wall_s:.1f}", f"{now.wall_s:.1f}"))
        differ += [op for op in now.verdicts if now.verdicts[op] != before.verdicts.get(op)]
        print(" | ".join(rows[-1]), flush=True)
    rows.append(_row("all", *totals, "", ""))
    print(f"\n{machine()}; {old.commit} and {new.commit}\n")
    print(table(("ops", "CPU s, other", "CPU s, this", "ratio", "wall s, other", "wall s, this"), rows))
    if differ:
        print(f"Other verdicts: {', '.join(differ)}", file=sys.stderr)
    return bool(differ)


def _row(title: str, old: float, new: float, *others: str) -> Sequence[str]:
    return title, f"{old:.1f}", f"{new:.1f}", f"{new / old:.2f}", *others


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
