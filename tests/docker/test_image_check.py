"""When the image is built: a program in place of docker stands for an engine."""

import os
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docker import image_check
from tests.docker.context import digest_of


@pytest.fixture
def passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(image_check, "PASSED", tmp_path / "passed")
    monkeypatch.delenv("START_DOCKER", raising=False)
    return tmp_path / "passed"


def be_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Put a program in the place of docker, which appends each command to a file."""
    (folder / "docker").write_text(f'#!/bin/sh\necho "$@" >>{folder}/calls\n{program}\n')
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_an_image_that_cannot_be_built_fails(passed, tmp_path, monkeypatch, capsys) -> None:
    be_docker(tmp_path, monkeypatch, "test $1 != build")
    passed.write_text("the digest of other files")
    assert image_check.main("--network", "host") == 1
    assert not passed.exists()
    assert "build --network host --target cpu --iidfile" in (tmp_path / "calls").read_text()
    assert "cannot be built" in capsys.readouterr().out


def test_without_an_engine_it_says_that_it_is_skipped(passed, tmp_path, monkeypatch, capsys) -> None:
    be_docker(tmp_path, monkeypatch, "exit 1")
    assert image_check.main() == 0
    assert not passed.exists()
    assert capsys.readouterr().out == "SKIPPED the test of the image: no Docker engine answers `docker info`.\n"


def test_the_engine_is_started_first(passed, tmp_path, monkeypatch) -> None:
    be_docker(tmp_path, monkeypatch, f"test -e {tmp_path}/engine")
    monkeypatch.setenv("START_DOCKER", f"touch {tmp_path}/engine")
    assert image_check.lacking() == ""


def test_what_has_passed_is_not_built_again(passed, tmp_path, monkeypatch) -> None:
    be_docker(tmp_path, monkeypatch, "exit 1")
    passed.write_text(digest_of(ROOT))
    assert image_check.main() == 0
    assert not (tmp_path / "calls").exists()
