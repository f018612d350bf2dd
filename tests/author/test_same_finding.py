"""A wrong gradient is the same finding in every way to check it: check, watch, pytest, and a service."""

import io

import pytest

from pullback.cli.console import console
from pullback.cli.watch import Saves, Watch
from pullback.local_checks import LocalChecks
from tests.conftest import Serve

pytestmark = pytest.mark.thorough

HEAD = "FAIL bad derivative, dy/dx, order 1, float64, graph, cpu"


def finding(output: str) -> list[str]:
    """Return the head of the finding, its sentence and its worst number."""
    lines = [line.strip() for line in output.splitlines()]
    start = lines.index(HEAD)
    return lines[start : start + 4]


def watched(folder) -> str:
    output = io.StringIO()
    with LocalChecks() as checker, Saves([folder]) as saves:
        Watch(console(output), checker, saves, seed=0).check([folder / "bad.py"])
    return output.getvalue()


def test_the_finding(here, folder, serve: Serve) -> None:
    some = ("--check", "derivative", "--check", "value")
    checked = here("pullback", "check", "my_ops/bad.py", *some)
    tested = here("pytest", "--pullback", "my_ops/bad.py", "-q", "-p", "no:cacheprovider", "-k", "derivative or value")
    served = here("pullback", "check", "bad", *some, "--url", serve(OPS_PATH=str(folder / "my_ops")).url)
    assert (checked.code, tested.code, served.code) == (1, 1, 1)
    expected = finding(checked.out)
    assert "are 1.1 times what they should be" in expected[1]
    assert finding(tested.out) == expected
    assert finding(served.out) == expected
    assert finding(watched(folder / "my_ops")) == expected
