"""The rules that every answer keeps, whatever the request was."""

import re

from tests.hostile.findings import FAULT, STATUS, TRACEBACK, Findings
from tests.hostile.wire import Answer

SECRET = re.compile(rb"Traceback|File \\?\"|\.py\b|site-packages|\{\{node|\[Op:")
BUSY = (429, 503, 504)
KNOWN = {200, 201, 204, 400, 401, 403, 404, 405, 406, 408, 410, 413, 414, 415, 421, 422, 431, 500, *BUSY}
FIRST_ERROR = 400


def judge(answer: Answer, findings: Findings, text: str, pieces: tuple[bytes, ...]) -> None:
    """Count an answer, and record each rule that it breaks; ``text`` says which request it answers."""
    findings.answered(answer.status)
    shown = f"{text}: {answer.status} {answer.body[:300]!r}"
    if answer.status not in KNOWN:
        findings.fail(STATUS, shown, pieces)
    if answer.status >= FIRST_ERROR and SECRET.search(answer.body):
        findings.fail(TRACEBACK, shown, pieces)
    if answer.status == 500:
        if is_op_error(answer):
            findings.op_failed()
        else:
            findings.fail(FAULT, shown, pieces)


def is_op_error(answer: Answer) -> bool:
    """Return whether a 500 is the op's own failure: an error of its protocol that does not blame the service."""
    return "json" in answer.content_type and b"internal error" not in answer.body.lower()
