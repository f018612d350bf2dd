"""Reports as JUnit XML: the checks, ops that are unavailable, and what has moved since a baseline."""

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from pullback import reports
from pullback.baselines import Difference, Move
from pullback.cli.junit import junit
from tests.client.documents import BROKEN, FAILING, LATE, PASSING, SETTING, check, report


def test_junit_can_be_parsed() -> None:
    odd = report("odd", check("fail", sentence="\x00\x1b < ]]> & \ud800"), check("inconclusive"), check(note=True))
    root = ET.fromstring(junit([reports.report(document) for document in (PASSING, FAILING, odd)], {}))
    assert root.attrib == {"name": "pullback", "tests": "8", "failures": "3", "errors": "0", "skipped": "2"} | {
        "time": root.attrib["time"]
    }
    assert [suite.attrib["name"] for suite in root] == ["square", "skewed", "odd"]
    failure = root[1][1].find("failure")
    assert failure is not None
    assert failure.attrib["message"] == 'dy/dx: fail, <angle> & "quotes"'
    assert "analytic 1.09  |  numeric 1 ± 1e-13" in str(failure.text)
    assert root[2][0][0].attrib["message"] == "�� < ]]> & �"
    assert root[2][1][0].tag == "skipped"
    assert root[2][1][0].attrib["message"].startswith("inconclusive: ")
    assert str(root[2][2][0].text).startswith("note: dy/dx: pass")
    assert {case.attrib["classname"] for case in root[0]} == {"pullback.square"}


def test_junit_has_what_the_op_was_checked_with() -> None:
    root = ET.fromstring(junit([reports.report(PASSING | SETTING)], {}))
    assert {each.attrib["name"]: each.attrib["value"] for each in root.iter("property")} == {
        **SETTING["origin"],
        **{"modes": "graph, eager", "devices": "cpu, gpu:0", "seed": "7"},
    }
    assert root[0].attrib["tests"] == "2"


def test_junit_counts_faults_of_the_checker() -> None:
    root = ET.fromstring(junit([reports.report(BROKEN), reports.report(LATE)], {}))
    assert (root.attrib["errors"], root.attrib["failures"], root.attrib["skipped"]) == ("1", "0", "3")
    error = root[0][1].find("error")
    assert error is not None
    assert error.attrib["message"] == "the check broke off with ValueError"


def test_an_unavailable_op_is_an_error_in_junit() -> None:
    root = ET.fromstring(junit([reports.report(PASSING)], {"gone\x00": "no library; run <make>"}))
    assert {name: root.attrib[name] for name in ("tests", "errors", "failures")} == {
        "tests": "3",
        "errors": "1",
        "failures": "0",
    }
    assert (root[1].attrib["name"], root[1].attrib["tests"], root[1].attrib["errors"]) == ("gone�", "1", "1")
    error = root[1][0].find("error")
    assert error is not None
    assert error.attrib["message"] == "unavailable: no library; run <make>"


def move(bars: float) -> Move:
    return Move(1, "x", "float64", {}, (3,), before=2.0, now=2.5, ulps=7.0, bars=bars, moved=1, numbers=4)


@pytest.mark.parametrize(
    ("difference", "tag", "text"),
    [
        (Difference("square"), None, ""),
        (Difference("square", [move(0.5)]), "system-out", "dx, float64: 1 of 4 numbers moved by up to 7 ULP"),
        (Difference("square", [move(2.0)], notes=["tensorflow 1 -> 2"]), "failure", "tensorflow 1 -> 2\ndx, float64"),
        (Difference("square", verdicts=["value: pass -> fail"], is_worse=True), "failure", "value: pass -> fail"),
        (Difference("square", incomparable="the baseline does not have this op"), "skipped", ""),
    ],
)
def test_what_has_moved_is_a_testcase_of_its_op(difference: Difference, tag: str | None, text: str) -> None:
    root = ET.fromstring(junit([reports.report(PASSING), reports.report(LATE)], {}, [difference]))
    case = root[0][-1]
    assert case.attrib["classname"] == "pullback.square"
    assert case.attrib["name"] == "baseline"
    assert [child.tag for child in case] == ([] if tag is None else [tag])
    assert all(text in str(child.text) or child.tag == "skipped" for child in case)
    counts = junit_counts(PASSING)
    counts["tests"] += 1
    for name, kind in {"failures": "failure", "skipped": "skipped"}.items():
        counts[name] += tag == kind
    assert {name: int(root[0].attrib[name]) for name in counts} == counts
    assert all(case.attrib["name"] != "baseline" for case in root[1])


def junit_counts(document: Any) -> dict[str, int]:
    suite = ET.fromstring(junit([reports.report(document)], {}))[0]
    return {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
