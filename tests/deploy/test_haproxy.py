"""HAProxy reads its configuration, whose times and sizes fit the settings of the service."""

import json
import re
import subprocess

import pytest

from app.settings import Settings
from tests.fleet.balancer import CONFIG, program
from tests.http.test_tls import make_certificate

LIMIT_S = 60
UNITS = {"ms": 1e-3, "s": 1.0}


@pytest.fixture
def defaults() -> Settings:
    return Settings.model_construct(**{name: field.default for name, field in Settings.model_fields.items()})


def seconds(pattern: str) -> float:
    """Return the time in the only place of the configuration that matches."""
    (found,) = re.findall(rf"{pattern} (\d+)(ms|s)\b", CONFIG.read_text())
    return int(found[0]) * UNITS[found[1]]


@pytest.mark.parametrize("planted", [None, "balance leastcon", "http-reuse sometimes"])
def test_haproxy_accepts_the_configuration_and_no_mistake(planted, tmp_path):
    certificate, key = make_certificate(tmp_path, "-nodes")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    text = CONFIG.read_text()
    assert text.count("/etc/haproxy/gradients.pem") == 1
    text = text.replace("/etc/haproxy/gradients.pem", str(both))
    if planted:
        text = re.sub(rf"{planted.split()[0]} \w+", planted, text, count=1)
    (tmp_path / "haproxy.cfg").write_text(text)
    command = [program(), "-c", "-f", tmp_path / "haproxy.cfg"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert (done.returncode == 0) == (planted is None), done.stderr


def test_the_service_answers_before_haproxy_gives_up(defaults):
    assert defaults.deadline_s < seconds(r"(?<!-)timeout server")
    assert defaults.checks_s < seconds("set-timeout server")
    assert seconds(r"(?<!-)timeout server") < seconds("timeout client")


def test_a_draining_server_is_left_out_before_it_closes(defaults):
    text = CONFIG.read_text()
    (fall,) = re.findall(r"\bfall (\d+)", text)
    assert seconds(r"\binter") + (int(fall) - 1) * seconds("fastinter") < defaults.drain_s


def test_a_server_gets_no_more_than_it_queues(defaults):
    bounds = re.findall(r"default-server.* maxconn (\d+)", CONFIG.read_text())
    # A single op may have half of the queue.
    assert len(bounds) == 2
    assert all(int(most) < defaults.queue / 2 for most in bounds)


def test_no_option_loses_requests_when_servers_die():
    """``slowstart`` leaves no room on the other servers, ``shutdown-sessions`` ends what is being connected."""
    options = re.findall(r"^ *(?:default-server|server) .*", CONFIG.read_text(), re.MULTILINE)
    assert not [line for line in options if "slowstart" in line or "shutdown-sessions" in line]


def test_only_answers_of_servers_are_not_sent_again():
    """A 503 is an answer; a request that was not answered may be sent again, once: it may be what ended the server."""
    assert re.findall(r"^ *retries (.*)$", CONFIG.read_text(), re.MULTILINE) == ["1"]
    (line,) = re.findall(r"^ *retry-on (.*)$", CONFIG.read_text(), re.MULTILINE)
    assert set(line.split()) == {"conn-failure", "empty-response"}


def test_the_balancers_own_errors_have_the_form_of_the_services():
    """Every status that HAProxy 2.6 answers by itself; the tests of fleets get some of them."""
    found = re.findall(r"status (\d+) content-type (\S+)(?: hdr \S+ \S+)* string '(.*?)'", CONFIG.read_text())
    assert {int(status) for status, _, _ in found} == {400, 403, 404, 408, 413, 500, 501, 502, 503, 504}
    for status, media_type, text in found:
        assert media_type == "application/problem+json"
        problem = json.loads(text)
        assert problem["status"] == int(status)
        assert problem.keys() == {"title", "status", "detail"}


def test_rules_compare_decoded_paths():
    """A process decodes paths, so a rule that compares the raw one means another path for a client that encodes it."""
    rules = re.findall(r"^ *((?:http-request|acl|balance|use_backend) .*)$", CONFIG.read_text(), re.MULTILINE)
    raw = [rule for rule in rules if re.search(r"(?<!txn\.)\bpath(?!,url_dec\b)", re.sub("string '.*'", "", rule))]
    # Only the statistics of HAProxy itself, on a port of the host.
    assert [rule.split()[:2] for rule in raw] == [["http-request", "use-service"]]
