"""One report from the checks at several inputs: the worst of each check, and the counts of all."""

from typing import Any

import pytest

from pullback.documents import written
from pullback.gradcheck.verdict import Finding, Subject, Verdict, worst_of
from pullback.recorder.merging import Checked, Recorded
from pullback.reports import report
from tests.client.documents import SETTING


def checked(number: int, verdict: Verdict, relative: float = 0.0) -> Checked:
    worst = worst_of((0,), 1.0, 1.0 + relative, 1.0, error_bar=0.0, dtype="float64")
    subject = Subject("derivative", 1, "y", "x", "umbridge", "float64")
    found = Finding(subject, verdict, f"{verdict} {relative}", 2, 0, {}, worst, digits={10: 1})
    entry: dict[str, Any] = written(found.entry({}, seconds=0.5))
    document = {"checks": [entry], "evaluations": 10, "seconds": 0.5, "unfinished": 0, "scope": "10 at 1. They show."}
    return Checked(number, document)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_the_worst_input_of_a_check_is_reported(order: tuple[int, ...]) -> None:
    points = [checked(7, "pass"), checked(9, "fail", 0.5), checked(11, "fail", 2.0), checked(13, "inconclusive")]
    recorded = Recorded("umbridge+http://a/m", [points[i] for i in order], early=1)
    found = report(recorded.document(40, 3, {"lost": 2}))
    (entry,) = found.checks
    assert (found.verdict, entry.verdict) == ("fail", "fail")
    assert entry.sentence == "fail 2.0; this is the input of request 11 of 40, and 2 of 4 recorded inputs show it"
    assert entry.worst is not None
    assert entry.worst.relative == 2.0
    assert (entry.points, entry.compared, entry.seconds, entry.digits) == (8, 8, 2.0, {10: 4})
    assert (found.evaluations, found.seed) == (40, 3)
    expected = {"requests": 40, "inputs": 4, "early": 1, "unreadable": 0, "lost": 2}
    assert found.document["recorded"] == expected
    assert found.document["scope"].startswith(
        "4 inputs of 40 requests, drawn at random, 1 of them while requests came;"
    )
    assert found.document["scope"].endswith("They show.")


def test_a_report_says_what_computed_an_op_where_it_is_the_same_at_all_inputs() -> None:
    points = [checked(7, "pass"), checked(9, "pass")]
    points[0].document.update(SETTING)
    points[1].document.update(SETTING, devices=["gpu:0"])
    found = report(Recorded("pullback+http://a/op", points).document(40, 3, {}))
    assert (found.origin, found.modes, found.devices) == (SETTING["origin"], SETTING["modes"], [])


def test_checks_that_broke_off_are_no_success() -> None:
    recorded = Recorded("umbridge+http://a/m", [checked(7, "pass")], faults=["the server is gone"])
    found = report(recorded.document(40, 3, {}))
    assert found.verdict == "error"
    assert found.checks[-1].sentence == "the check broke off: the server is gone"
