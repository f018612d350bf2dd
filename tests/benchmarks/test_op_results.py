"""The goals of every op: which cases they judge, and what the pages say about them."""

import json

import pytest

from benchmarks.load import Sample
from benchmarks.op_cases import CASES
from benchmarks.op_goals import CONNECTIONS, Measured, verdicts
from benchmarks.op_requests import OURS, PEER
from benchmarks.op_results import DATA, PAGE, Run, markdown, summary, write


def sample(rate: float, cpu_us: float) -> Sample:
    return Sample(requests=1000, seconds=1000 / rate, p50=0, p99=0, longest=0, cpu=1e-3 * cpu_us)


def measured(op: str, batching: str, times: float, cpu_us: float, call_us: float) -> Measured:
    """An op whose rate is so many times that of UM-Bridge, in two rounds."""
    case = next(case for case in CASES if case.op == op)
    one = Measured(case, batching, "graph")
    for _ in range(2):
        one.call.samples.append(sample(1e6 / call_us, call_us))
        for c in CONNECTIONS:
            one.servers[c][OURS].samples.append(sample(1000 * times, cpu_us))
            one.servers[c][PEER].samples.append(sample(1000, 200))
    return one


@pytest.fixture
def run() -> Run:
    found = [
        measured("square", "elementwise", times=6, cpu_us=80, call_us=40),
        measured("sign", "elementwise", times=4, cpu_us=100, call_us=40),
        measured("zero_out", "none", times=1, cpu_us=300, call_us=100),
    ]
    return Run(found, ["relu: the service lacks the op"], "A run")


def test_goals_judge_their_ops(run):
    counts = {
        (one.goal.title, one.goal.bound): (one.met, [op for op, _ in one.missed])
        for one in verdicts(run.found)
        if one.size == "first example"
    }
    rows, rate, cpu = "ops with independent rows", "rate relative to UM-Bridge", "CPU per request"
    assert counts == {
        (f"{rows}, c = 16: {rate}", "at least 3x"): ("2 of 2", []),
        (f"{rows}, c = 64: {rate}", "at least 5x"): ("1 of 2", ["sign"]),
        (f"{rows}, c = 16: {cpu}", "at most 90 µs"): ("1 of 2", ["sign"]),
        (f"{rows}, c = 64: {cpu}", "at most 90 µs"): ("1 of 2", ["sign"]),
        (f"other ops, c = 16: {cpu} above the bare call", "at most 60 µs"): ("0 of 1", ["zero_out"]),
        (f"every op, c = 1: {cpu} above the bare call", "at most 150 µs"): ("2 of 3", ["zero_out"]),
    }


def test_the_page_has_every_case(run, tmp_path):
    write(tmp_path, run)
    page = (tmp_path / PAGE).read_text()
    assert page == markdown(run)
    assert "| `sign` | yes | graph | 7 | 40 µs | 4,000 (100 µs) / 4x, 2x | " in page
    assert "| `sign` | 7 | 1,000 (200 µs) | " in page
    assert "- relu: the service lacks the op." in page
    data = json.loads((tmp_path / DATA).read_text())
    assert [one["op"] for one in data["ops"]] == ["square", "sign", "zero_out"]
    assert data["ops"][0]["c16"][OURS] == {"rate": [6000, 6000], "cpu_us": [80, 80]}


def test_the_summary_has_the_median_and_both_ends(run):
    line = (
        "| first example | 64 | 4x (1x, `zero_out` to 6x, `square`) | 100 µs (80 µs, `square` to 300 µs, `zero_out`) |"
    )
    assert line in summary(run)
    assert "| about 1,000 numbers | 64 | – | – |" in summary(run)


def test_a_server_that_failed_has_no_figures(run):
    run.found[1].servers[64][PEER].why = "refused"
    page = markdown(run)
    assert "| `sign` | 7 | 1,000 (200 µs) | 1,000 (200 µs) | refused |" in page
    assert "4,000 (100 µs) / –, – |" in page
