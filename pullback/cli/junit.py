"""Reports as JUnit XML for continuous integration: a testsuite for each op, a testcase for each check."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence

from pullback.cli.findings import lines
from pullback.places import place
from pullback.reports import Check, Report

# The characters that XML 1.0 cannot represent, escaped or not.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(reports: Sequence[Report], unavailable: Mapping[str, str]) -> bytes:
    """Return the reports as a document; inconclusive and skipped checks count as skipped.

    An unavailable op, which ``unavailable`` maps to its reason, is a testsuite with one error.
    """
    root = ET.Element("testsuites", name="pullback")
    for report in reports:
        suite = ET.SubElement(root, "testsuite", {"name": _text(report.op), **_counts(report.checks, report.seconds)})
        suite.extend(_case(report.op, check) for check in report.checks)
    checks = [check for report in reports for check in report.checks]
    root.attrib.update(_counts(checks, sum(report.seconds for report in reports), unavailable=len(unavailable)))
    for op, reason in unavailable.items():
        suite = ET.SubElement(root, "testsuite", {"name": _text(op), **_counts((), 0.0, unavailable=1)})
        case = ET.SubElement(suite, "testcase", classname=f"pullback.{_text(op)}", name="available", time="0.000000")
        ET.SubElement(case, "error", message=_text(f"unavailable: {reason}"))
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)


def _case(op: str, check: Check) -> ET.Element:
    name, seconds = _text(place(check)), f"{check.seconds:.6f}"
    case = ET.Element("testcase", classname=f"pullback.{_text(op)}", name=name, time=seconds)
    if check.verdict != "pass":
        kind = {"fail": "failure", "error": "error"}.get(check.verdict, "skipped")
        message = check.sentence if check.verdict != "inconclusive" else f"inconclusive: {check.sentence}"
        ET.SubElement(case, kind, message=_text(message)).text = _text("\n".join(lines(check))) or None
    return case


def _counts(checks: Sequence[Check], seconds: float, *, unavailable: int = 0) -> dict[str, str]:
    failed, broken = (sum(check.verdict == verdict for check in checks) for verdict in ("fail", "error"))
    skipped = sum(check.verdict in ("inconclusive", "skipped") for check in checks)
    errors = broken + unavailable
    counts = {"tests": len(checks) + unavailable, "failures": failed, "errors": errors, "skipped": skipped}
    return {**{name: str(count) for name, count in counts.items()}, "time": f"{seconds:.6f}"}


def _text(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
