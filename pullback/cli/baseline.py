"""``pullback check --save baseline.json`` and ``--against baseline.json``."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pullback.baselines import Difference, Document, differences, read
from pullback.cli.console import STYLES, print_indented, styled
from pullback.counted import counted
from pullback.errors import BadArgument
from pullback.reports import Report

MOST_MOVES = 5
"""The most arrays of an op that are listed, those that moved farthest first."""


def read_baseline(path: Path, seed: int) -> Document:
    """Return the baseline in a file; raise ``BadArgument`` for any other file, and for one of another seed."""
    try:
        found = read(json.loads(path.read_bytes()))
    except OSError as error:
        raise BadArgument(f"--against: cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadArgument(f"--against {path}: {error}") from None
    if found["seed"] != seed:
        raise BadArgument(f"--against {path}: expected --seed {found['seed']}, with which it was saved, got {seed}")
    return found


def compare(before: Document, reports: Sequence[Report]) -> list[Difference]:
    """Return how ops differ from a baseline; an op that it does not have is incomparable."""
    found = list(differences(before, reports))
    known = {difference.op for difference in found}
    new = "the baseline does not have this op: save it again"
    return found + [Difference(report.op, incomparable=new) for report in reports if report.op not in known]


def lines(difference: Difference, *, only_beyond: bool = False) -> list[str]:
    """Return what differs, a line each; with ``only_beyond``, not what moved within its error bar."""
    moves = [move for move in difference.moves if move.is_beyond or not only_beyond]
    found = [*difference.verdicts, *(move.sentence for move in moves[:MOST_MOVES])]
    found += [f"and {counted(len(moves) - MOST_MOVES, 'more array')}"] if len(moves) > MOST_MOVES else []
    return found + ([difference.incomparable] if difference.incomparable else [])


def print_differences(out: Console, found: Sequence[Difference], path: Path | None, *, quiet: bool = False) -> None:
    """Print what differs from a baseline; with ``quiet``, only what is beyond the error bars or incomparable."""
    for difference in found:
        shown = lines(difference, only_beyond=quiet)
        if not shown:
            continue
        style = STYLES["fail"] if difference.is_beyond else STYLES["inconclusive"]
        notes = f" ({', '.join(difference.notes)})" if difference.notes else ""
        out.print(styled(f"MOVED {difference.op}{notes}", f"bold {style}"))
        for line in shown:
            print_indented(out, styled(line))
    if not quiet:
        numbers, moved = sum(each.compared for each in found), sum(bool(each.moves) for each in found)
        beyond = sum(each.is_beyond for each in found)
        of_ops = f"{moved} of {counted(len(found), 'op')} moved"
        text = f"against {path}: {counted(numbers, 'number')}; {of_ops}, {beyond} beyond the error bars"
        out.print(styled(text, "bold"))
