"""The Makefile: how it installs and compiles, in a folder whose name has a space."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tensorflow as tf

from tests.conftest import ROOT

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
LONG_AGO = 10**9
NOXFILE = ROOT / "noxfile.py"


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


def make_wheel(folder: Path) -> str:
    """Write a wheel with one module, ``planted``; return its digest."""
    info, path = "planted-1.0.dist-info", folder / "planted-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("planted.py", "HERE = True\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"planted.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_step_that_fails_runs_again(clone, tmp_path) -> None:
    stamp, lock = clone / ".venv" / ".installed-cpu", clone / "requirements" / "cpu.txt"
    # No uv can be downloaded here.
    assert make(clone, "installer", PIP_NO_INDEX="1").returncode != 0
    (clone / "requirements" / "uv.txt").write_text("")
    assert make(clone, "installer").returncode == 0
    (clone / ".venv" / "bin" / "uv").symlink_to(ROOT / ".venv" / "bin" / "uv")
    alone = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path)}
    digest = make_wheel(tmp_path)
    for wrong in ("absent==1.0", "planted==1.0"):
        lock.write_text(f"{wrong} --hash=sha256:{digest[::-1]}\n")
        failed = make(clone, ".venv/.installed-cpu", **alone)
        assert failed.returncode != 0
        assert wrong in failed.stderr
        assert not stamp.exists()
    lock.write_text(f"planted==1.0 --hash=sha256:{digest}\n")
    done = make(clone, ".venv/.installed-cpu", **alone)
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


def test_the_release_check_makes_targets_that_exist() -> None:
    made = re.findall(r'"make"(?:, "-C", clone)?, "([\w-]+)"|^step\("[\w.-]+", "([\w-]+)"', NOXFILE.read_text(), re.M)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert len(made) > 10
    assert {one or other for one, other in made} <= set(targets)


def test_a_release_is_a_commit_with_its_tag_and_its_date(clone) -> None:
    def git(*arguments: str) -> None:
        person = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *person, *arguments], cwd=clone, check=True)

    def refusal() -> str:
        """Return why make refuses a release, before it installs or builds anything."""
        done = make(clone, "release", "--assume-old=distribution")
        assert (done.returncode == 0) == (done.stderr == "")
        assert not (clone / ".venv").exists()
        return done.stderr

    (clone / "pullback").mkdir()
    (clone / "pullback" / "__init__.py").write_text('"""The client."""\n\n__version__ = "1.2.0"\n')
    (clone / "CHANGELOG.md").write_text("## [1.2.0]\n")
    git("init", "--quiet")
    assert "Expected a commit without changes beside it, got:\n?? CHANGELOG.md" in refusal()
    git("add", "--all")
    git("commit", "--quiet", "--message", "Begin")
    git("tag", "v1.2.0.dev0")
    assert "Expected the tag v1.2.0 at this commit" in refusal()
    git("tag", "v1.2.0")
    assert "Expected a heading ## [1.2.0] with its date in CHANGELOG.md" in refusal()
    (clone / "CHANGELOG.md").write_text("## [1.2.0] - 2026-11-27\n")
    git("commit", "--quiet", "--all", "--message", "Release")
    assert "Expected the tag v1.2.0 at this commit" in refusal()
    git("tag", "--force", "v1.2.0")
    assert refusal() == ""
