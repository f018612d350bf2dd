"""Files for results: found unwritable before any request, and never half written."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.client.documents import FAILING, PASSING, stream
from tests.client.fake_servers import event_stream

WRITING = {
    "--json": ["check"],
    "--junit": ["check"],
    "--out": ["call", "square", "forward", "x=1"],
}
OLD = "an old result"


@pytest.fixture(params=WRITING)
def option(request: pytest.FixtureRequest) -> str:
    return request.param


def unprivileged() -> bool:
    return os.geteuid() != 0


@pytest.mark.parametrize("place", ["no/such/folder/file", ".", "a file/file", "x" * 300])
def test_an_unwritable_file_is_an_error_before_any_request(run, fake_server, tmp_path, option: str, place: str) -> None:
    (tmp_path / "a file").touch()
    server = fake_server(event_stream(*stream(PASSING)))
    message = run(*WRITING[option], option, str(tmp_path / place), url=server.url).error
    assert message.startswith(f"pullback: {option}: cannot write {tmp_path}")
    assert server.requests == []
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]


@pytest.mark.skipif(not unprivileged(), reason="root may write everything")
def test_a_read_only_file_is_an_error_before_any_request(run, fake_server, tmp_path, option: str) -> None:
    file = tmp_path / "file"
    file.touch(mode=0o444)
    server = fake_server(event_stream(*stream(PASSING)))
    assert "Permission denied" in run(*WRITING[option], option, str(file), url=server.url).error
    assert server.requests == []


def test_two_reports_need_two_files(run, tmp_path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "x")
    for one, other in (("-", "-"), (f"{tmp_path}/x", f"{tmp_path}/../{tmp_path.name}/x"), (f"{tmp_path}/link",) * 2):
        message = run("check", "--json", one, "--junit", other, url="http://127.0.0.1:9").error
        assert "--junit: expected another file than that of --json" in message
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


@pytest.mark.parametrize("is_old", [True, False])
def test_without_a_result_the_old_file_stays(run, fake_server, tmp_path, option: str, is_old: bool) -> None:
    file = tmp_path / "file"
    if is_old:
        file.write_text(OLD)
    server = fake_server(event_stream(*stream(PASSING)[:-1], is_cut=True))
    assert run(*WRITING[option], option, str(file), url=server.url).code == 2
    assert [path.read_text() for path in tmp_path.iterdir()] == [OLD] * is_old


def test_a_report_replaces_the_old_one(run, fake_server, tmp_path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text(OLD * 10_000)
    file.chmod(0o640)
    link.symlink_to(file)
    server = fake_server(event_stream(*stream(PASSING, FAILING)))
    assert run("check", "--json", str(link), url=server.url).code == 1
    assert [report["op"] for report in json.loads(file.read_text())["reports"]] == ["square", "skewed"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


def test_a_new_file_has_the_usual_permissions(run, fake_server, tmp_path) -> None:
    (tmp_path / "usual").touch()
    server = fake_server(event_stream(*stream(PASSING)))
    run("check", "--junit", str(tmp_path / "file"), url=server.url)
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_is_no_plain_file_is_written_in_place(run, fake_server) -> None:
    server = fake_server(event_stream(*stream(PASSING)))
    reader, writer = os.pipe()
    result = run("check", "--quiet", "--json", f"/dev/fd/{writer}", url=server.url)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert json.loads(pipe.read())["summary"]["pass"] == 1
    assert (result.code, result.err) == (0, "")
    assert run("check", "--json", "/dev/null", url=server.url).code == 0
    assert "--json: cannot write /dev/full: No space" in run("check", "--json", "/dev/full", url=server.url).error
    assert Path("/dev/full").is_char_device()


def test_a_file_that_cannot_be_replaced_is_written_in_place(run, fake_server, tmp_path, monkeypatch) -> None:
    def refuse(self: Path, target: Any) -> None:
        raise OSError(16, "Device or resource busy")

    # As a file that is mounted into a container.
    monkeypatch.setattr(Path, "replace", refuse)
    file = tmp_path / "file"
    file.write_text(OLD * 10_000)
    server = fake_server(event_stream(*stream(PASSING)))
    assert run("check", "--json", str(file), url=server.url).code == 0
    assert json.loads(file.read_text())["summary"]["pass"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
