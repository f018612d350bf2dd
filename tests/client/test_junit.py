"""Reports as JUnit XML: the checks, and ops that are unavailable."""

import xml.etree.ElementTree as ET

from pullback import reports
from pullback.cli.report_files import junit
from tests.client.documents import BROKEN, FAILING, LATE, PASSING, SETTING, check, report


def test_junit_can_be_parsed() -> None:
    odd = report("odd", check("fail", sentence="\x00\x1b < ]]> & \ud800"), check("inconclusive"), check(note=True))
    root = ET.fromstring(junit([reports.report(document) for document in (PASSING, FAILING, odd)], {}, "pass"))
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


def test_inconclusive_checks_are_failures_unless_they_count_as_passed() -> None:
    kinky = [reports.report(report("kinky", check("inconclusive")))]
    for counting, tag in (("fail", "failure"), ("pass", "skipped")):
        assert [each.tag for each in ET.fromstring(junit(kinky, {}, counting))[0][0]] == [tag]


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
