"""The wheel, installed into an empty environment and used from an author's folder elsewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.metadata import Metadata

from pullback import __version__
from tests.author.conftest import Ran, pullback
from tests.conftest import READY, ROOT
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

PROJECT = ROOT / "pyproject.toml"
UV = Path(sys.executable).with_name("uv")
# A package of the lock, with its hashes.
LOCKED = re.compile(r"^([a-z][a-z0-9-]*)==.*?(?=^[a-z]|\Z)", re.MULTILINE | re.DOTALL)
YAML = re.compile(r"^`([^`\n]*)`:\n\n```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TYPED = """
import numpy as np
from pullback.ops import Array, Op
from my_ops.cube import OP, reference

op: Op = OP
bad: int = OP.name
y: Array = reference(3)
z: Array = reference(np.ones(3))
"""
STARTED = """
import sys, pullback, pullback.cli
assert not {"app", "ops", "tensorflow"} & sys.modules.keys()
try:
    import ops
except ImportError:
    pass
else:
    raise SystemExit("ops is in everybody's way")
import pullback.ops
assert pullback.ops.Op
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy, so that setuptools leaves nothing in this folder."""
    source = tmp_path_factory.mktemp("a copy")
    for name in ("app", "ops", "pullback", "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", source / "dist"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, source], check=True, timeout=PATIENCE_S)
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what its extra ``serve`` asks for, at the versions of the lock."""
    folder = tmp_path_factory.mktemp("an environment")
    venv.create(folder, symlinks=True)
    install = [UV, "pip", "install", "--quiet", "--python", folder / "bin" / "python"]
    subprocess.run([*install, "--require-hashes", "-r", ROOT / "requirements" / "cpu.txt"], check=True)
    # All that the extra asks for is there, if its ranges admit the versions of the lock.
    subprocess.run([*install, "--no-index", f"pullback[serve] @ {wheel.as_uri()}"], check=True)
    return folder


@pytest.fixture(scope="module")
def with_pip(wheel: Path, environment: Path) -> dict[str, str]:
    """The variables of a shell whose ``pip`` installs into the environment, and has the wheel in place of an index."""
    locked = {found[1]: found[0] for found in LOCKED.finditer((ROOT / "requirements" / "dev.txt").read_text())}
    needed = wheel.with_name("pytest.txt")
    needed.write_text("".join(locked[name] for name in ("iniconfig", "packaging", "pluggy", "pygments", "pytest")))
    python = environment / "bin" / "python"
    install = [UV, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r"]
    subprocess.run([*install, needed], check=True)
    pip = environment / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{python}" "$@"\n')
    pip.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "PIP_FIND_LINKS": wheel.parent.as_uri(),
        "PIP_NO_INDEX": "1",
    }


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("another repository")


def test_the_wheel_has_every_package(wheel: Path) -> None:
    packages = {
        str(path.parent.relative_to(ROOT)).replace("/", ".")
        for name in ("app", "ops", "pullback")
        for path in (ROOT / name).rglob("__init__.py")
    }
    listed = tomllib.loads(PROJECT.read_text())["tool"]["setuptools"]["packages"]
    assert {name.removeprefix("pullback._service.") for name in listed} == packages
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"pullback"}
    service = ("main.py", "routes/native/llms.txt")
    templates = ("page.py.txt", "skill.md.txt")
    for path in (
        *("py.typed", "ops/_op.py", "_service/ops/relu.cc"),
        *(f"_service/app/{name}" for name in service),
        *(f"cli/templates/{name}" for name in templates),
    ):
        assert f"pullback/{path}" in names
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "app" / "explorer").rglob("*") if path.is_file()}
    assert pages <= {name.removeprefix("pullback/_service/") for name in names}


def test_an_index_can_show_the_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name)
    found = Metadata.from_email(text, validate=True)
    assert (found.name, str(found.version), found.license_expression) == ("pullback", __version__, "Apache-2.0")
    assert found.summary
    assert found.requires_python == ">=3.11"
    assert {"serve", "serve-gpu", "jax", "torch", "tensorflow", "pytensor"} <= set(found.provides_extra or ())
    assert {"Typing :: Typed", "Framework :: Pytest"} <= set(found.classifiers or ())
    assert found.description_content_type == "text/markdown"
    # Elsewhere, a relative link or picture leads nowhere.
    assert found.description
    targets = re.findall(r"\]\(([^)]+)\)|<img|src=", found.description)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert found.description.startswith("# Pullback\n")


@pytest.mark.thorough
def test_an_author_elsewhere(environment: Path, author: Path) -> None:
    python = str(environment / "bin" / "python")

    def run(*arguments: str) -> Ran:
        return pullback(author, *arguments, executable=python)

    subprocess.run([python, "-P", "-c", STARTED], cwd=author, check=True, timeout=PATIENCE_S)
    assert run("pullback", "new", "cube").code == 0
    # Whoever writes ops in Python does not hear of the C++ ops that the wheel has the source of.
    healthy = run("pullback", "doctor")
    assert (healthy.code, "MISSING" in healthy.out) == (0, False), healthy
    assert "NotBuilt" not in healthy.out + healthy.error
    assert "expected a folder with C++ files, such as my_ops" in run("pullback", "native").error
    assert run("pullback", "new", "soft", "--native").code == 0
    built = run("pullback", "native", "my_ops")
    assert built.code == 0, built.error
    checked = run("pullback", "check", "my_ops", "--check", "derivative", "--check", "value", "--json", "-")
    assert checked.code == 0, checked.out + checked.error
    assert [(report["op"], report["verdict"]) for report in json.loads(checked.out)["reports"]] == [
        ("cube", "pass"),
        ("soft", "pass"),
    ]
    # `ops` is the service's, whatever is in the author's folder.
    (author / "ops.py").write_text("raise SystemExit('the wrong module')")
    service = subprocess.Popen(
        [environment / "bin" / "pullback", "serve", "my_ops", "--port", "0"],
        cwd=author,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PULLBACK_STRICT": "1"},
        text=True,
    )
    try:
        assert service.stdout
        found = READY.match(service.stdout.readline())
        assert found
        called = run("pullback", "call", "cube", "vjp", "x=2", "--json", "--url", found[1])
        assert json.loads(called.out)["gradients.x"]["data"] == 12.0, called
        native = run("pullback", "call", "soft", "vjp", "x=1", "--json", "--url", found[1])
        assert json.loads(native.out)["gradients.x"]["data"] == 0.25, native
        listed = json.loads(run("pullback", "ops", "--json", "--url", found[1]).out)["ops"]
        assert [op["name"] for op in listed if not op["available"]] == []
    finally:
        service.terminate()
        _, log = service.communicate(timeout=PATIENCE_S)
    assert [line for line in log.splitlines() if "WARN" in line or "unavailable" in line] == []


@pytest.mark.thorough
def test_the_files_for_continuous_integration(with_pip: dict[str, str], folder: Path, tmp_path: Path) -> None:
    """Each line runs as it is written, and the last fails: the report has the finding of the wrong page alone."""
    github, gitlab = (script(yaml.safe_load(file)) for _, file in YAML.findall((ROOT / "docs" / "ci.md").read_text()))
    # Other tests run this command.
    assert gitlab == [github[0].removesuffix(" pytest"), "pullback check my_ops/ --junit gradients.xml"]
    shutil.copytree(folder / "my_ops", tmp_path / "my_ops", ignore=shutil.ignore_patterns("__pycache__", "broken.py"))
    subprocess.run(["pip", "uninstall", "--quiet", "--yes", "pullback"], env=with_pip, check=True)
    *before, last = github
    for line in before:
        subprocess.run(["bash", "-ec", line], cwd=tmp_path, env=with_pip, check=True, timeout=PATIENCE_S)
    done = subprocess.run(
        ["bash", "-ec", last],
        cwd=tmp_path,
        env=with_pip,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    cases = list(ET.parse(tmp_path / "gradients.xml").iter("testcase"))
    wrong = [case for case in cases if case.find("failure") is not None]
    assert all("bad" in case.attrib["classname"] for case in wrong)
    assert any("are 1.1 times what they should be" in ET.tostring(case, "unicode") for case in wrong)
    assert any("cube" in case.attrib["classname"] for case in cases)


def script(document: Any) -> list[str]:
    """Return the commands of a file for GitHub or GitLab."""
    if "jobs" in document:
        (job,) = document["jobs"].values()
        return [step["run"] for step in job["steps"] if "run" in step]
    (job,) = document.values()
    return job["script"]


@pytest.mark.thorough
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_page_has_types_elsewhere(environment: Path, author: Path, checker: str) -> None:
    """The two mistakes in a use of a page are found, and nothing else is wrong."""
    assert pullback(author, "pullback", "new", "cube", executable=str(environment / "bin" / "python")).code in (0, 2)
    (author / "uses.py").write_text(TYPED)
    (author / "my_ops" / "__init__.py").touch()
    python = environment / "bin" / "python"
    command = {
        # TensorFlow has no types, wherever it is imported.
        "mypy": ["--python-executable", python, "--ignore-missing-imports", "uses.py"],
        "pyright": ["--pythonpath", python, "uses.py"],
    }[checker]
    done = subprocess.run(
        [sys.executable, "-m", checker, *command],
        cwd=author,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == 2, done.stdout + done.stderr
    assert all(words in error for words, error in zip(("uses.py:7", "uses.py:8"), errors, strict=True))
    assert "str" in errors[0]
    assert "reference" in errors[1]
