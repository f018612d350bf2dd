"""``pullback watch``: at every save the verdict, the cheap checks first, and what differs from the last time."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pullback.cli.console import console
from pullback.cli.watch import Saves, Watch, differences, pages_due
from pullback.local_checks import LocalChecks
from tests.author.conftest import RIGHT, WRONG, pullback

pytestmark = pytest.mark.slow


class Loop(NamedTuple):
    page: Path
    save: Callable[[str], list[str]]


@pytest.fixture
def loop(folder, tmp_path) -> Iterator[Loop]:
    """A page that is watched, and the lines that a save of it prints."""
    page = tmp_path / "cube.py"
    page.write_text((folder / "my_ops" / "cube.py").read_text())
    output = io.StringIO()
    with LocalChecks() as checker, Saves([tmp_path]) as saves:
        watch = Watch(console(output), checker, saves, seed=0)

        def save(text: str) -> list[str]:
            start = len(output.getvalue())
            page.write_text(text)
            assert page in saves.take()
            watch.check([page])
            return output.getvalue()[start:].splitlines()

        yield Loop(page, save)


def test_every_save_is_checked_and_compared_with_the_last(loop) -> None:
    right = loop.page.read_text()
    first, setting, last = loop.save(right + "\n")
    assert "cube: pass so far (contract, value, derivative; " in first
    assert "cube: pass (" in last
    assert setting.endswith("cpu, seed 0")
    wrong = loop.save(right.replace(RIGHT, WRONG))
    assert "all are 1.1 times what they should be" in wrong[1]
    assert wrong[-1].endswith("; derivative: pass -> fail")
    assert loop.save(right)[-1].endswith("; derivative: fail -> pass")
    [broken] = loop.save(right.replace("import Array", "import Arrray"))
    assert "cannot import name 'Arrray'" in broken
    assert "cube.py:3 and start again" in broken
    assert loop.save(right)[-1].endswith("; as before")


@pytest.mark.thorough
def test_a_graph_is_checked_at_every_save_of_a_page_beside_it(loop, graphs) -> None:
    graph = graphs / "sixth.graph.json"
    assert pages_due([loop.page, graph], [loop.page]) == [loop.page, graph]
    assert pages_due([loop.page, graph], [graph]) == [graph]
    output = io.StringIO()
    with LocalChecks() as checker, Saves([graphs]) as saves:
        graph.write_text(graph.read_text() + "\n")
        assert graph in saves.take()
        Watch(console(output), checker, saves, seed=0).check([graph, graphs / "lost.graph.json"])
    first, _, last, lost = output.getvalue().splitlines()
    assert "sixth: pass so far (contract, value, derivative; " in first
    assert "sixth: pass (" in last
    assert "lost.graph.json and start again" in lost


def test_only_checks_with_another_verdict_are_named() -> None:
    assert differences({"value": "pass", "modes": "pass"}, {"value": "fail", "modes": "pass", "new": "pass"}) == (
        "value: pass -> fail"
    )
    assert differences({"value": "pass"}, {"value": "pass"}) == "as before"


def test_a_name_is_refused(folder) -> None:
    refused = pullback(folder, "pullback", "watch", "cube")
    assert (refused.code, refused.out) == (2, "")
    assert "expected pages or folders, such as my_ops/cube.py, got cube" in refused.error
