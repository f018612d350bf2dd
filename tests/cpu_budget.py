"""Report the CPU time of the tests next to a budget: ``pytest -p tests.cpu_budget --cpu-budget 300``.

On quiet cores, the tests take about their CPU time divided by the number of processes (``-n``). CPU time differs less
between machines and from run to run than wall time does; still, a run over its budget is reported and does not fail.
"""

import os
import time
from collections import Counter
from pathlib import Path

import pytest

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LONGEST = 5


class CpuBudget:
    """What the tests took: the CPU time of each process of the tests, and the wall time of each file."""

    def __init__(self, budget_s: float) -> None:
        self.budget_s = budget_s
        self.taken_s = 0.0
        self.files: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.files[report.nodeid.partition("::")[0]] += report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        """Add the CPU time of a process of xdist; one that has crashed has not sent it."""
        self.taken_s += getattr(node, "workeroutput", {}).get("cpu_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        # What ended processes of xdist took is already counted.
        taken_s = self.taken_s + (time.process_time() if self.taken_s else cpu_s(os.getpid()))
        line = f"The tests took {taken_s:.0f} s of CPU time, their budget is {self.budget_s:.0f} s."
        if taken_s > self.budget_s:
            longest = ", ".join(f"{file} {wall_s:.0f} s" for file, wall_s in self.files.most_common(LONGEST))
            line += f" Mark tests as slow that a change seldom breaks. The files that took longest: {longest}."
        terminalreporter.write_line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-budget", type=float, default=0.0, help="the CPU seconds that the tests may take")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CpuBudget(config.getoption("cpu_budget")))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what this process of xdist took."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["cpu_s"] = cpu_s(os.getpid())


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, its descendants, and those of them that have ended."""
    try:
        # The name of a process may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS_PER_S + sum(cpu_s(child) for task in tasks for child in children(task))


def children(task: Path) -> list[int]:
    """Return the processes that a thread has started, none if the thread has ended meanwhile."""
    try:
        return [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
