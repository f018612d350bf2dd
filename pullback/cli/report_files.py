"""The files that ``pullback check`` writes, by option: --json, --junit and --html."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence

from pullback.cli import follow
from pullback.cli.follow import Outcome
from pullback.cli.output_files import OutputFile
from pullback.findings import Check, Counting, is_accepted, place
from pullback.html.page import page
from pullback.reports import Report

# The characters that XML 1.0 cannot represent, escaped or not.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_reports(files: Mapping[str, OutputFile], outcome: Outcome) -> None:
    """Write the results to the files of these options."""
    for option, file in files.items():
        content = WRITERS[option](outcome).encode()
        file.write(lambda stream, content=content: stream.write(content))


def as_json(outcome: Outcome) -> str:
    """Return all reports, as they were sent but for the commands, and the summary."""
    document = {
        "reports": [report.document for report in outcome.reports],
        "unavailable": outcome.unavailable,
        "summary": None if outcome.summary is None else outcome.summary.document,
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def as_junit(outcome: Outcome) -> str:
    """Return all reports as JUnit XML."""
    return junit(outcome.reports, outcome.unavailable, outcome.inconclusive).decode() + "\n"


def as_html(outcome: Outcome) -> str:
    """Return all reports as a page."""
    return page(outcome.reports, outcome.unavailable, is_interrupted=outcome.is_interrupted)


WRITERS: Mapping[str, Callable[[Outcome], str]] = {"--json": as_json, "--junit": as_junit, "--html": as_html}


def junit(reports: Sequence[Report], unavailable: Mapping[str, str], inconclusive: Counting = "fail") -> bytes:
    """Return the reports as a document; inconclusive checks are failures, or skipped if they count as ``pass``.

    An unavailable op, which ``unavailable`` maps to its reason, is a testsuite with one error.
    """
    root = ET.Element("testsuites", name="pullback")
    for report in reports:
        suite = ET.SubElement(root, "testsuite", name=_text(report.op))
        if report.origin:
            suite.append(_properties(report))
        suite.extend(_case(report.op, check, inconclusive) for check in report.checks)
        suite.attrib.update(_counts(suite, report.seconds))
    for op, reason in unavailable.items():
        suite = ET.SubElement(root, "testsuite", name=_text(op))
        case = _testcase(op, "available", 0.0)
        suite.append(case)
        ET.SubElement(case, "error", message=_text(f"unavailable: {reason}"))
        suite.attrib.update(_counts(suite, 0.0))
    root.attrib.update(_counts(root, sum(report.seconds for report in reports)))
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)


def _properties(report: Report) -> ET.Element:
    """Return what the op was checked with."""
    several = {"modes": report.modes, "devices": report.devices}
    found = {**report.origin, **{name: ", ".join(values) for name, values in several.items() if values}}
    properties = ET.Element("properties")
    for name, value in {**found, "seed": str(report.seed)}.items():
        ET.SubElement(properties, "property", name=_text(name), value=_text(value))
    return properties


def _case(op: str, check: Check, inconclusive: Counting) -> ET.Element:
    case = _testcase(op, place(check), check.seconds)
    if check.verdict != "pass":
        kind = "skipped" if is_accepted(check.verdict, inconclusive) else "failure"
        kind = "error" if check.verdict == "error" else kind
        message = check.sentence if check.verdict != "inconclusive" else f"inconclusive: {check.sentence}"
        ET.SubElement(case, kind, message=_text(message)).text = _text("\n".join(follow.lines(check))) or None
    elif check.note:
        ET.SubElement(case, "system-out").text = _text(f"note: {check.sentence}")
    return case


def _testcase(op: str, name: str, seconds: float) -> ET.Element:
    return ET.Element("testcase", classname=f"pullback.{_text(op)}", name=_text(name), time=f"{seconds:.6f}")


def _counts(suite: ET.Element, seconds: float) -> dict[str, str]:
    """Return the attributes that say how many testcases are below an element, and how they ended."""
    kinds = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    counts = {name: str(sum(1 for _ in suite.iter(tag))) for name, tag in kinds.items()}
    return {**counts, "time": f"{seconds:.6f}"}


def _text(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
