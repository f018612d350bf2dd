"""Several `make` at once in one folder: each file is made once, and all of them succeed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.patience import PATIENCE_S

# Nothing may be installed into the environment that runs this.
WITHOUT_INSTALLING = "--assume-old=.venv/.installed-cpu"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("requirements", "Makefile"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "tiny.cc").write_text('extern "C" int tiny() { return 1; }\n')
    return tmp_path


def make_at_once(folder: Path, *arguments: str, count: int = 2) -> str:
    """Run `make` several times at once; return what they print, after each has succeeded."""
    own = ("MAKE", "PIP_", "UV_", "PULLBACK_")
    others = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    env = {**others, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    command = ["make", f"PYTHON={sys.executable}", *arguments]
    running = [
        subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(count)
    ]
    ends = [(one.communicate(timeout=PATIENCE_S)[0], one.returncode) for one in running]
    assert [end for end in ends if end[1] != 0] == []
    return "".join(text for text, _ in ends)


def test_one_compiles_and_the_others_wait(clone: Path) -> None:
    (clone / ".venv").symlink_to(ROOT / ".venv")
    build = (WITHOUT_INSTALLING, "CXX=sleep 1; g++", "build/tiny.so")
    assert make_at_once(clone, *build, count=3).count("Compiling ops/tiny.cc") == 1
    flags = clone / "build" / "tensorflow.flags"
    right = flags.read_text()
    for _ in range(3):
        flags.write_text("2.5.0\n")
        assert make_at_once(clone, *build, count=3).count("Compiling ops/tiny.cc") == 1
        assert flags.read_text() == right
    left = {path.name for path in (clone / "build").iterdir() if not path.name.endswith(".lock")}
    assert left == {"tiny.so", "tensorflow.flags"}


@pytest.mark.slow
def test_one_makes_the_environment_and_the_other_waits(clone: Path) -> None:
    (clone / "requirements" / "uv.txt").write_text("")
    assert make_at_once(clone, "installer").count("Making .venv") == 1
    (clone / ".venv" / "bin" / "uv").symlink_to(ROOT / ".venv" / "bin" / "uv")
    (clone / "requirements" / "cpu.txt").write_text("")
    assert make_at_once(clone, ".venv/.installed-cpu").count("Installing requirements/cpu.txt") == 1
