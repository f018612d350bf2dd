"""``python -m tests.gradcheck.seeds 50``: check every registered op with 50 seeds, and print each false alarm."""

import sys
from collections.abc import Iterator

from ops import discover
from tests.gradcheck.checking import report


def alarms(count: int) -> Iterator[str]:
    """Yield a line for each check that fails; print the progress to stderr, one line per seed."""
    for seed in range(count):
        print(f"seed {seed} of {count}", file=sys.stderr)
        for op in discover().ops.values():
            for entry in report(op, seed=seed)["checks"]:
                if entry["verdict"] == "fail":
                    yield f"seed {seed}: {op.name} {entry['attrs']} {entry['check']}: {entry['sentence']}"


if __name__ == "__main__":
    count = 0
    for line in alarms(int(sys.argv[1])):
        count += 1
        print(line, flush=True)
    sys.exit(1 if count else 0)
