"""The output fits terminals of every width, and without a terminal nothing is folded or cut."""

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

import pullback
from pullback import reports
from pullback.catalogue import Contract, OpSummary
from pullback.cli.call import Entry, print_entries
from pullback.cli.catalogue import print_contract, print_ops
from pullback.cli.console import UNFOLDED
from pullback.cli.follow import follow
from tests.client.documents import FAILING, INCONCLUSIVE, LATE, PASSING, check, report, stream

WIDTHS = (20, 40, 60, 80, 100, 200)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COMMAND = "pullback call skewed vjp x=0.5,0.25,0.125 dy=1.0,2.0,3.0 --dtype float64 --mode graph"


def output(write: Callable[[Console], object], width: int) -> list[str]:
    """Return what a terminal of a width gets, or for ``UNFOLDED`` another program, without styles."""
    is_terminal = width != UNFOLDED
    file = io.StringIO()
    write(Console(file=file, force_terminal=is_terminal, width=width, soft_wrap=not is_terminal, highlight=False))
    return ESCAPES.sub("", file.getvalue()).splitlines()


def words(lines: list[str], longest: int) -> set[str]:
    """Return all words that are not too long, except titles of columns that a block may lack."""
    found = {word.rstrip(":") for word in " ".join(lines).split() if cell_len(word) <= longest}
    return found - {"name", "kinks", "poles", "doc"}


@pytest.fixture(scope="module")
def ops(service) -> list[OpSummary]:
    with pullback.Client(service.url) as client:
        return client.ops()


@pytest.fixture(scope="module")
def contracts(service, ops) -> list[Contract]:
    with pullback.Client(service.url) as client:
        return [client.op(op.name).contract() for op in ops]


def assert_readable(write: Callable[[Console], object], width: int) -> None:
    """Check that no line is longer than the terminal and no word is broken or lost, unless it is longer than a line."""
    whole, folded = output(write, UNFOLDED), output(write, width)
    assert [line for line in folded if cell_len(line) > width] == []
    assert words(whole, width - 2) <= words(folded, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_of_ops(ops, width: int) -> None:
    assert_readable(lambda out: print_ops(out, ops), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_contracts(contracts, width: int) -> None:
    for contract in contracts:
        without_examples = replace(contract, examples=())
        assert_readable(partial(print_contract, op=without_examples), width)


def test_an_example_to_copy_is_one_line(contracts) -> None:
    for contract in contracts:
        whole, folded = (output(partial(print_contract, op=contract), width) for width in (UNFOLDED, 40))
        examples = whole[whole.index("Examples") + 1 :]
        assert examples == folded[folded.index("Examples") + 1 :]


def checks(*documents: dict) -> Callable[[Console], object]:
    events = [reports.event(json.dumps(event)) for event in stream(*documents, unavailable={"gone": "no library"})]
    return lambda out: follow(out, [event for event in events if event is not None])


@pytest.mark.parametrize("width", WIDTHS)
def test_reports(width: int) -> None:
    lines = output(checks(PASSING, FAILING, INCONCLUSIVE, LATE), width)
    assert [line for line in lines if cell_len(line) > width] == []
    found = words(lines, width)
    assert {"square", "skewed", "kinky", "heavy", "FAIL", "INCONCLUSIVE", "failed,", "analytic"} <= found


def test_a_command_to_paste_is_one_line() -> None:
    failed = report("skewed", check("fail", reproduce=COMMAND, shows="gradients.x[0]"))
    assert f"    {COMMAND}" in output(checks(failed), 40)


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_the_progress_has_its_numbers_and_the_step(width: int) -> None:
    lines = output(checks(PASSING, FAILING), width)
    assert any(re.search(r"\b\d/[2?]", line) for line in lines), lines
    assert any("starting" in line for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_arrays(width: int) -> None:
    arrays = [Entry("outputs.y", np.arange(60.0).reshape(3, 20), "")]
    assert_readable(lambda out: print_entries(out, arrays), width)


@pytest.mark.parametrize("args", [[], ["check", "--help"], ["call", "--help"], ["verify", "--help"], ["key", "--help"]])
def test_help_at_40_columns(run, monkeypatch, args: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = "".join(run(*args)[1:])
    assert [line for line in narrow.splitlines() if cell_len(line) > 40] == []
    assert "…" not in narrow


@pytest.mark.parametrize("columns", ["20", "40"])
def test_without_a_terminal_nothing_is_folded(run, service, monkeypatch, ops, columns: str) -> None:
    whole = run("ops", url=service.url).out
    monkeypatch.setenv("COLUMNS", columns)
    assert run("ops", url=service.url).out == whole
    assert [line.endswith(op.summary) for line, op in zip(whole.splitlines()[1:], ops, strict=True)] == [True] * len(
        ops
    )
