"""The line of a request in the log, as text and as JSON, whichever path the request takes."""

import http.client
import json
import re
from contextlib import closing
from typing import Any

import pytest

from tests.patience import PATIENCE_S

PATH = "/v1/ops/log1pexp/vjp"
TEXT = re.compile(
    r"(?P<time>\S+) (?P<method>\S+) (?P<path>\S+) (?P<status>\d+) (?P<ms>[0-9.]+)ms in=(?P<in>\d+) out=(?P<out>\d+) "
    r"client=(?P<client>\S+) id=(?P<id>\S+)"
)
# Enough for a template of the request, so that the fast path answers the last ones.
MANY = 60


def fields(line: str, form: str) -> dict[str, str]:
    """Return the fields of a line."""
    if form == "json":
        return {name: str(value) for name, value in json.loads(line).items()}
    found = TEXT.fullmatch(line)
    assert found is not None, line
    return found.groupdict()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_says_what_was_asked_and_answered(start: Any, form: str) -> None:
    one = start(LOG=form).wait_until_ready()
    expected = dict[str, dict[str, str]]()
    with closing(http.client.HTTPConnection("127.0.0.1", one.port, timeout=PATIENCE_S)) as connection:
        for number in range(MANY):
            body = json.dumps({"inputs": {"x": [number + 0.5, 1.25, -3.0][: 1 + number % 3]}}) + "," * (number % 7 == 5)
            connection.request("POST", PATH, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            expected[response.headers["x-request-id"]] = {
                "method": "POST",
                "path": PATH,
                "status": str(response.status),
                "in": str(len(body)),
                "out": str(len(response.read())),
                "client": "{}:{}".format(*connection.sock.getsockname()),
            }
        connection.request("GET", "/metrics")
        scraped = connection.getresponse().read().decode()
    assert float(re.findall(r"^pullback_express_requests_total (\S+)$", scraped, re.MULTILINE)[0]) > 0
    for name in expected:
        one.log_with(name)
    lines = [fields(line, form) for line in one.log().splitlines() if PATH in line]
    assert len(lines) == MANY
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
        assert 0 < float(line.pop("ms")) < 1000 * PATIENCE_S
        assert line == expected[line.pop("id")]
