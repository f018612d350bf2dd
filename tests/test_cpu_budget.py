"""The processes of the tests: how many there are, and the report of their CPU time and the longest files."""

import re
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import PROCESSES, ROOT, pytest_cmdline_main

pytestmark = pytest.mark.slow

# Each of these processes takes at least that many CPU seconds.
BUSY_S = 0.3
BUSY = f"import time\nwhile time.process_time() < {BUSY_S}:\n    pass\n"
TESTS = f"""
import subprocess
import sys

def test_that_starts_a_process():
    subprocess.run([sys.executable, "-c", {BUSY!r}], check=True)

def test_that_is_busy_itself():
    exec({BUSY!r})
"""


def summary(folder: Path, processes: int, budget_s: float) -> str:
    """Run two tests, and return what the report says; the CPU time that it states is that of all processes."""
    (folder / "test_busy.py").write_text(TESTS, encoding="ascii")
    options = ["-p", "tests.cpu_budget", "--cpu-budget", str(budget_s), "-n", str(processes), "-p", "no:cacheprovider"]
    before_s = ended_children_s()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", folder, *options, folder / "test_busy.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("The tests took")]
    stated_s, taken_s = float(line.split()[3]), ended_children_s() - before_s
    # The processes still have to end then, and seconds are rounded.
    assert 0.6 * taken_s - 0.5 <= stated_s <= taken_s + 0.5, line
    return line


def ended_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    ("processes", "budget_s", "ending"),
    [
        (2, 2 * BUSY_S, r"s\. Mark tests as slow .* The files that took longest: test_busy\.py \d+ s\."),
        (0, 1000.0, r"their budget is 1000 s\."),
    ],
)
def test_a_budget_that_is_exceeded_names_the_longest_file(tmp_path: Path, processes: int, budget_s: float, ending: str):
    line = summary(tmp_path, processes, budget_s)
    assert re.search(f"{ending}$", line), line


@pytest.mark.parametrize(
    ("processes", "names", "of_xdist", "expected"),
    [
        (None, ["tests/test_tiny.py::test_a", "tests/test_house.py"], {}, 0),
        (None, ["tests/test_tiny.py", "tests/http"], {}, PROCESSES),
        (2, ["tests/test_tiny.py"], {}, 2),
        (None, ["tests"], {"workerinput": {}}, None),
    ],
    ids=["files", "a folder", "as asked", "a process of xdist starts no others"],
)
def test_in_how_many_processes_tests_run(processes: Any, names: list[str], of_xdist: Any, expected: Any) -> None:
    plugins = SimpleNamespace(hasplugin=lambda name: name == "xdist")
    option = SimpleNamespace(numprocesses=processes, markexpr="")
    pytest_cmdline_main(cast(Any, SimpleNamespace(option=option, args=names, pluginmanager=plugins, **of_xdist)))
    assert option.numprocesses == expected
    assert option.markexpr == "not docker and not thorough"
