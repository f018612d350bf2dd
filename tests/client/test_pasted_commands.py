"""The command of a finding runs as it is pasted."""

import shlex
import sys

import pytest

from pullback.cli import reproduction
from pullback.cli.reproduction import PointFiles, runnable
from pullback.reports import Report, report
from tests.client.documents import FAILING

COMMANDS = ("pullback call steep vjp x=1.0", "no operation returns this number", None)
DOCUMENT = {**FAILING, "checks": [{**FAILING["checks"][0], "reproduce": command} for command in COMMANDS]}


def commands(url: str | None) -> list[str | None]:
    def events():
        yield report(DOCUMENT)

    return [
        check.reproduce
        for event in runnable(events(), PointFiles.not_written("square"), url)
        if isinstance(event, Report)
        for check in event.checks
    ]


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:9", "unix:/tmp/a socket"])
def test_the_url_is_in_the_command(monkeypatch, url) -> None:
    monkeypatch.setattr(reproduction.shutil, "which", lambda name: f"/usr/bin/{name}")
    command, *others = commands(url)
    assert command is not None
    assert shlex.split(command) == [*COMMANDS[0].split(), *([] if url is None else ["--url", url])]
    assert others == [*COMMANDS[1:]]


def test_where_the_shell_does_not_find_it_the_command_has_its_path(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    (here := tmp_path / "a folder" / "pullback").parent.mkdir()
    monkeypatch.setattr(sys, "argv", [str(here)])
    assert reproduction.executable() == f"{shlex.quote(sys.executable)} -m pullback"
    here.touch()
    assert shlex.split(reproduction.executable()) == [str(here)]
