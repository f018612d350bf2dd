"""What the balancer keeps from clients, however they write it, and what it answers by itself."""

import http.client
import json

import pytest

from tests.fast_path.wire import Wire
from tests.patience import PATIENCE_S

METRICS = (
    "/metrics",
    "/%6Detrics",
    "/%6d%65%74%72%69%63%73?x=%zz",
    "/metric%73",
    "/metrics?",
    "/metrics#x",
    "http://localhost/metrics",
    "HTTP://u@localhost:80/%6Detrics",
)
# Not metrics to the service either; another version may decode or normalise more.
ALMOST = ("/metrics%0A", "/metrics%00", "/metrics/", "/metrics;x", "/METRICS")
ELSEWHERE = ("//metrics", "/./metrics", "/x/../metrics", "/%2Fmetrics", "/%256Detrics", "//x/metrics", "/..%2Fmetrics")
NO_PATH = ("*", "metrics", "?/metrics", "/%zz")


def get(port: int, target: str, host: str = "127.0.0.1") -> tuple[int, str, bytes]:
    """Return the status, the media type and the body of the answer to GET for a target as it is."""
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    connection.putrequest("GET", target, skip_host=True)
    connection.putheader("Host", "localhost")
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.headers.get_content_type(), answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("target", [*METRICS, *ALMOST, *ELSEWHERE, *NO_PATH])
def test_metrics_are_not_for_clients(fleet, target):
    status, _, body = get(fleet.port, target)
    assert status in (400, 404)
    assert b"pullback_" not in body


@pytest.mark.parametrize("target", METRICS)
def test_a_process_itself_answers_these(fleet, target):
    """The tests above say something only if the service takes each of these targets for its metrics."""
    member = fleet.members["a"]
    status, _, body = get(member.port, target, member.host)
    assert status == 200
    assert b"pullback_requests_total" in body


@pytest.mark.parametrize(
    "target", ["/v1/ops/%73quare", "/v1%2Fops/square", "http://localhost/v1/ops/square", "/v1/ops/"]
)
def test_other_paths_are_those_of_a_process(fleet, target):
    member = fleet.members["a"]
    assert get(fleet.port, target)[:2] == get(member.port, target, member.host)[:2]


@pytest.mark.parametrize("target", ["/metrics", "/%zz"])
def test_the_balancers_own_errors_are_problems(fleet, target):
    status, media_type, body = get(fleet.port, target)
    assert media_type == "application/problem+json"
    problem = json.loads(body)
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"].startswith("expected ")


def test_an_error_of_the_balancer_has_no_body_for_head(fleet):
    with Wire(fleet.port) as wire:
        wire.send(
            *(b"%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % line for line in (b"HEAD /metrics", b"GET /health/live"))
        )
        wire.socket.settimeout(PATIENCE_S)
        found = b""
        while b'"live"' not in found:
            piece = wire.socket.recv(1 << 16)
            assert piece, found
            found += piece
    refused, answered = found.split(b"\r\n\r\n", 1)
    assert refused.startswith(b"HTTP/1.1 404 ")
    assert answered.startswith(b"HTTP/1.1 200 ")
