"""The Makefile: how it installs and compiles, in a folder whose name has a space."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tests.test_install import make_wheel

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
LONG_AGO = 10**9


@pytest.fixture
def clone(tmp_path) -> Path:
    """A folder with what `make` installs from, older than anything installed, and one small C++ file."""
    folder = tmp_path / "a clone"
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "ops").mkdir()
    (folder / "ops" / "tiny.cc").write_text('#include "absl/base/config.h"\nextern "C" int tiny() { return 1; }\n')
    for path in folder.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return folder


def make(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `make` without the options and the packages of a `make` or a machine around it."""
    own = ("MAKE", "PIP_", "UV_", "PULLBACK_")
    others = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    environment = {**others, "PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(folder / "cache"), **variables}
    return subprocess.run(
        ["make", f"PYTHON={sys.executable}", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_flags_are_those_of_tensorflow() -> None:
    version, *flags = (ROOT / "build" / "tensorflow.flags").read_text().splitlines()
    assert version == tf.__version__
    found = [flag if flag.startswith(("-D", "--", "-l")) else Path(flag.removeprefix("-L")) for flag in flags]
    # A path may lead through a link.
    found = [flag.resolve() if isinstance(flag, Path) else flag for flag in found if flag != Path("-isystem")]
    include, library = (Path(path).resolve() for path in (tf.sysconfig.get_include(), tf.sysconfig.get_lib()))
    theirs = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    expected = [include if flag.startswith("-I") else library if flag.startswith("-L") else flag for flag in theirs]
    assert found == expected


def test_a_library_is_compiled_once_and_again_for_another_tensorflow(clone) -> None:
    (clone / ".venv").symlink_to(ROOT / ".venv")
    # Nothing may be installed into the environment that runs this.
    build = ("--assume-old=.venv/.installed-cpu", "build/tiny.so")
    first = make(clone, *build)
    assert (first.returncode, first.stdout, first.stderr) == (0, "Compiling ops/tiny.cc\n", "")
    assert (clone / "build" / "tiny.so").exists()
    assert make(clone, *build).stdout == ""
    flags = clone / "build" / "tensorflow.flags"
    right = flags.read_text()
    flags.write_text(right.replace(tf.__version__, "2.5.0"))
    assert make(clone, *build).stdout == "Compiling ops/tiny.cc\n"
    assert flags.read_text() == right


@pytest.mark.slow
def test_without_an_index_the_step_fails_and_runs_again(clone, tmp_path) -> None:
    alone = {"PIP_NO_INDEX": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    stamp = clone / ".venv" / ".installed-cpu"
    failed = make(clone, str(stamp.relative_to(clone)), **alone)
    assert "uv cannot be installed here, so pip installs everything" in failed.stdout
    assert failed.returncode != 0
    assert not stamp.exists()
    digest = hashlib.sha256(make_wheel(tmp_path)).hexdigest()
    (clone / "requirements" / "cpu.txt").write_text(f"planted==1.0 --hash=sha256:{digest}\n")
    done = make(clone, str(stamp.relative_to(clone)), PIP_FIND_LINKS=str(tmp_path).replace(" ", "%20"), **alone)
    assert "Installing requirements/cpu.txt" in done.stdout
    assert "Making" not in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert (clone / ".venv" / "lib" / f"python{MINOR}" / "site-packages" / "planted.py").exists()
    # A script of the environment starts, whatever the path to it.
    assert subprocess.run([clone / ".venv" / "bin" / "pip", "--version"], capture_output=True, check=True).stdout


def test_another_python_is_refused_with_the_cure(clone) -> None:
    refused = make(clone, "installer", "PYTHON=no-such-python")
    assert refused.returncode != 0
    assert "Expected no-such-python to be Python 3.11, 3.12 or 3.13" in refused.stderr
    assert "make installer PYTHON=python3.12" in refused.stderr
    assert not (clone / ".venv").exists()


def test_a_release_of_a_tree_with_changes_is_refused(clone) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=clone, check=True)
    done = make(clone, "release")
    assert done.returncode != 0
    assert "Expected a commit without changes beside it, got:\n?? Makefile" in done.stderr
    assert not (clone / ".venv").exists()
    assert not (clone / "dist").exists()
