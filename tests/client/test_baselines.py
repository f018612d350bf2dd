"""Baselines: what has moved since one was saved, from a report, and with the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.baselines import baseline, differences, read
from pullback.gradcheck.recorded import MOST, recorded
from pullback.reports import Report, report

pytestmark = pytest.mark.slow

ENTRY: dict[str, Any] = {
    **{"check": "derivative", "verdict": "pass", "sentence": "", "order": 1, "output": "y", "input": "x"},
    **{"attrs": {}, "mode": "graph", "dtype": "float64", "device": "cpu", "points": 1, "evaluations": 1},
    **{"seconds": 0.0, "inconclusive": {}, "worst": None},
}


def reported(values: Any, bar: float = 1e-12, *, verdict: str = "pass", point: str = "p", **record: Any) -> Report:
    place: dict[str, Any] = {"attrs": {}, "point": point, "dtype": "float64", "order": 1, "slot": "x"}
    numbers = recorded(np.array(values, np.float64), np.array(bar))
    array: dict[str, Any] = {**place, **numbers, "values": [str(x) if np.isnan(x) else x for x in numbers["values"]]}
    head = {"op": "cube", "verdict": verdict, "sentence": "", "seed": 0, "points": 1, "evaluations": 1, "seconds": 0.0}
    own: dict[str, Any] = {"digest": "d", "versions": {"tensorflow": "2.21.0"}, "arrays": [array]} | record
    return report({**head, "checks": [{**ENTRY, "verdict": verdict}], "record": own})


def saved(*reports: Report) -> Any:
    return read(json.loads(json.dumps(baseline(reports))))


def difference(before: Report, now: Report):
    (found,) = differences(saved(before), [now])
    return found


def test_nothing_has_moved() -> None:
    found = difference(reported([1.0, np.nan]), reported([1.0, np.nan]))
    assert (found.moves, found.verdicts, found.notes, found.incomparable) == ([], [], [], "")
    assert found.compared == 2


def test_a_move_is_told_in_units_in_the_last_place_and_of_the_error_bar() -> None:
    found = difference(reported([[1.0, 2.0], [4.0, 8.0]]), reported([[1.0, 2.0], [4.0, 8.0 + 16 * 2.0**-49]], 1e-13))
    (move,) = found.moves
    assert (move.what, move.index, move.moved, move.numbers, move.ulps) == ("dx", (1, 1), 1, 4, 16.0)
    assert move.bars == pytest.approx(16 * 2.0**-49 / 1e-12)
    assert not found.is_beyond
    assert "dx, float64: 1 of 4 numbers moved by up to 16 ULP, 0.028 error bars: dx[1, 1] from 8 to 8.000" in (
        move.sentence
    )


@pytest.mark.parametrize("now", [[1.0, 2.2], [1.0, np.nan], [1.0, 2.0 + 1e-11]])
def test_a_move_beyond_the_error_bar(now: Any) -> None:
    assert difference(reported([1.0, 2.0]), reported(now)).is_beyond


def test_a_worse_verdict_is_told_and_a_better_one_is_no_failure() -> None:
    worse = difference(reported([1.0]), reported([1.0], verdict="fail"))
    assert (worse.verdicts, worse.is_beyond) == (
        ["derivative, dy/dx, order 1, float64, graph, cpu: pass -> fail"],
        True,
    )
    assert not difference(reported([1.0], verdict="fail"), reported([1.0])).is_beyond


def test_what_differs_besides_is_noted() -> None:
    now = reported([1.0], digest="e", versions={"tensorflow": "2.22.0"})
    assert difference(reported([1.0]), now).notes == ["the page has changed", "tensorflow 2.21.0 -> 2.22.0"]


@pytest.mark.parametrize("now", [reported([1.0], point="q"), reported([1.0, 2.0])])
def test_other_points_cannot_be_compared(now: Any) -> None:
    assert "1 of 1 arrays are at other points" in difference(reported([1.0]), now).incomparable


def test_a_large_array_is_sampled_with_its_ends() -> None:
    found = recorded(np.arange(1000.0), np.array(0.5))
    assert (len(found["at"]), found["at"][0], found["at"][-1]) == (MOST, 0, 999)
    assert found["values"] == found["at"]
    assert recorded(np.zeros((0, 3)), np.zeros(()))["values"] == []


CHANGES: list[Callable[[Any], Any]] = [
    lambda d: d.update(format="another"),
    lambda d: d.pop("ops"),
    lambda d: d.pop("seed"),
    lambda d: d["ops"]["cube"].pop("arrays"),
    lambda d: d["ops"]["cube"].update(versions=[1]),
    lambda d: d["ops"]["cube"]["arrays"][0].update(values=[]),
    lambda d: d["ops"]["cube"]["arrays"][0].update(values=["x"]),
    lambda d: d["ops"]["cube"]["arrays"][0].update(at=[7]),
    lambda d: d["ops"]["cube"]["arrays"][0].update(at=[-1]),
    lambda d: d["ops"].update(cube=3),
]


@pytest.mark.parametrize("change", CHANGES)
def test_another_file_is_refused(change: Any) -> None:
    document = json.loads(json.dumps(baseline([reported([1.0])])))
    change(document)
    with pytest.raises(ValueError, match="expected the JSON that --save writes"):
        read(document)


def test_with_a_service(ask: Any, tmp_path: Path) -> None:
    file, other = tmp_path / "b.json", tmp_path / "c.json"
    done = ask("check", "square", "--check", "value", "--save", str(file))
    assert done.code == 0, done
    entry = json.loads(file.read_text())["ops"]["square"]
    assert {"pullback", "tensorflow", "numpy", "python"} == set(entry["versions"])
    assert {array["order"] for array in entry["arrays"]} == {0, 1, 2}
    done = ask("check", "square", "--check", "value", "--against", str(file), "--json", str(other))
    assert (done.code, "0 of 1 op moved" in done.out) == (0, True), done
    (found,) = json.loads(other.read_text())["against"]
    assert (found["moves"], found["compared"] > 100) == ([], True)
    # A number that was another then, and an op that was not there.
    entry["arrays"][0]["values"][0] += 1.0
    file.write_text(json.dumps({"format": "pullback baseline 1", "seed": 0, "ops": {"square": entry}}))
    done = ask("check", "square", "--check", "value", "--against", str(file), "--junit", str(other))
    assert done.code == 1
    assert "MOVED square" in done.out
    assert 'name="baseline"' in other.read_text()
    assert '<failure message="moved beyond the error bars">' in other.read_text()
    done = ask("check", "log1pexp", "--check", "value", "--against", str(file))
    assert done.code == 2
    assert "the baseline does not have this op" in done.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--against", "/nowhere/b.json"], "--against: cannot read /nowhere/b.json: No such file"),
        (["--against", __file__], "test_baselines.py: "),
        (["--save", "/nowhere/b.json"], "--save: cannot write /nowhere/b.json"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_before_the_checks(ask: Any, args: Any, message: Any) -> None:
    assert message in ask("check", "square", *args).error


def test_another_seed_is_told(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps({"format": "pullback baseline 1", "seed": 3, "ops": {}}))
    found = ask("check", "square", "--against", str(tmp_path / "b.json"))
    assert "expected --seed 3, with which it was saved, got 0" in found.error
