"""The comparison with another version: its requests are answered, and what is red is slower each time."""

import http.client
import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from benchmarks.against import REPETITIONS, Cell, markdown, run
from benchmarks.against_loads import FAST, Load, loads
from benchmarks.cells import LARGE
from benchmarks.checkouts import Checkout
from benchmarks.commit import described
from benchmarks.op_cases import CASES

pytestmark = pytest.mark.slow

LOADS = list(loads())
SMALL = [load for load in LOADS[: -len(CASES)] if load.n < LARGE]
OLD, NEW = (Checkout(Path(), Path(), name) for name in ("old", "new"))


@pytest.mark.parametrize("load", SMALL, ids=lambda load: f"{load.title}, {load.n}")
def test_the_service_answers_the_requests_of_a_load(client: httpx.Client, load: Load):
    bodies = set[bytes]()
    for request in itertools.islice(load.requests(), 2):
        answer = client.post(request.path, content=request.body, headers=dict(request.headers))
        assert answer.status_code == http.client.OK, answer.text
        bodies.add(request.body)
    assert len(bodies) == 2


def test_cells_have_different_titles():
    titles = [Cell(load, server, c).title for load in LOADS for server, c in load.cells]
    assert len(titles) == len(set(titles))


class Measured:
    """Measures one cell: its ratios in turn, or the reason why it has none."""

    def __init__(self, *ratios: float, why: str = "") -> None:
        self.ratios, self.why, self.count = list(ratios), why, 0

    def __call__(self, load: Load, cells: Sequence[Cell]) -> None:
        for cell in cells:
            self.count += 1
            cell.why = self.why
            if not self.why:
                cell.measured.append((100.0, 100 * self.ratios.pop(0)))


@pytest.mark.parametrize(
    ("measured", "count", "is_red"),
    [
        (Measured(1.09), 1, False),
        (Measured(1.3, 1.0), 2, False),
        (Measured(1.3, 1.2, 1.05), 3, False),
        (Measured(1.2, 1.3, 1.25), 1 + REPETITIONS, True),
        (Measured(why="this version answers 500"), 1, True),
        (Measured(why="the other version answers 404"), 1, False),
    ],
)
def test_a_cell_is_red_if_each_measurement_is(measured: Measured, count: int, is_red: bool):
    first = Cell(LOADS[0], FAST, 64)
    cells = run(measured, first.title)
    assert [cell.title for cell in cells] == [first.title]
    assert (measured.count, cells[0].is_red) == (count, is_red)
    page = markdown(cells, OLD, NEW, "A run")
    assert ("1 of 1 cells are red" in page, "**red**" in page) == (is_red, is_red)


def test_a_commit_is_named_with_its_date_and_changes(tmp_path: Path):
    assert described(tmp_path) == "unknown: not a clone of the repository"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    (tmp_path / "file").write_text("one")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "One", "--date=2020-01-01T00:00:00Z"]):
        subprocess.run([*git, *command], check=True, env={"GIT_COMMITTER_DATE": "2020-01-02T00:00:00Z"})
    commit = described(tmp_path)
    assert commit.endswith(" of 2020-01-02")
    (tmp_path / "file").write_text("two")
    assert described(tmp_path) == f"{commit}, with uncommitted changes"
