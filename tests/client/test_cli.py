"""The command line as a whole: its version, help, keys, errors and exit codes."""

import hashlib
import os
import subprocess

import pytest

import pullback
from tests.client.conftest import client_environment, command
from tests.client.fake_servers import Response

COMMANDS = [
    ["ops"],
    ["show", "square"],
    ["call", "square", "forward", "x=1"],
    ["check"],
    ["verify", "square", "x=1", "gx=2"],
]


def test_the_version(run) -> None:
    assert run("--version").out == f"pullback {pullback.__version__}\n"


@pytest.mark.parametrize(
    "args", [["--help"], [], *([name, "--help"] for name in ("serve", "key", "call", "check", "verify"))]
)
def test_help(run, args: list[str]) -> None:
    assert "Usage: pullback" in "".join(run(*args)[1:])


def test_the_shell_completes_commands_and_options() -> None:
    for words, at, expected in (("pullback ch", 1, ["check"]), ("pullback check --inco", 2, ["--inconclusive"])):
        asked = {"_PULLBACK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = subprocess.run(
            command(), env={**client_environment(), **asked}, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == expected


def test_a_new_key_and_its_line(run) -> None:
    first, second = (run("key", "new", "alice").out.splitlines() for _ in range(2))
    (key, line), other = first[1::2], second[1]
    assert line == f"alice:{hashlib.sha256(key.encode()).hexdigest()}"
    assert len(key) > 43
    assert key != other


def test_the_terms_of_a_new_key(run) -> None:
    assert run("key", "new", "alice", "may=call", "rate=9/min").out.splitlines()[3].endswith(" may=call rate=9/min")
    assert "until: expected a day, such as 2027-06-30" in run("key", "new", "alice", "until=June").error


@pytest.mark.parametrize("name", ["", "a b", "a:b", "#", "-x", "a" * 65, "a\n"])
def test_an_invalid_name_of_a_key(run, name: str) -> None:
    assert "expected a name of at most 64 letters" in run("key", "new", "--", name).error


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: args[0])
@pytest.mark.parametrize("state", ["dead", "slow", "other"])
def test_no_service_is_a_one_line_error(run, fake_server, args: list[str], state: str) -> None:
    html = Response(200, b"<html>", {"content-type": "text/html"})
    server = fake_server(html if state == "other" else Response(is_held=True))
    url = server.url if state != "dead" else "http://127.0.0.1:9"
    message = {"dead": "cannot connect to", "slow": "within 0.1 s", "other": "is not Pullback"}[state]
    assert message in run(*args, "--timeout", "0.1" if state == "slow" else "60", url=url).error


def test_the_url_may_precede_the_command(run, service) -> None:
    assert run("--url", service.url, "ops", url="http://127.0.0.1:9").code == 0
    assert "nonsense" in run("--url", "nonsense", "ops").error


def test_a_closed_pipe_prints_no_error(service) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for args in (["ops"], ["call", "square", "forward", "x=1", "--json"]):
        done = subprocess.run(
            command(*args), env=client_environment(service.url), stdout=writer, stderr=subprocess.PIPE, check=False
        )
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(writer)


def test_a_fault_of_the_command_line_has_not_the_code_of_a_wrong_gradient(run, monkeypatch) -> None:
    def fault(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("pullback.cli.commands.client", fault)
    result = run("ops")
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith("ZeroDivisionError: planted\n")


def test_a_full_disk_is_a_one_line_error(service) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("ops"), env=client_environment(service.url), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr == b"pullback: cannot write the output: No space left on device\n"
