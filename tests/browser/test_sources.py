"""The explorer's JavaScript: its types, by TypeScript's compiler, and its style, by ESLint. Both find a mistake."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "tests"))
from page_examples import node

SOURCES = ROOT / "app" / "explorer" / "js"
PACKAGES = Path(sys.prefix) / "packages"
# A mistake for each tool: a number that is a text, and a variable that nobody uses.
WRONG = {"tsc": "/** @type {number} */\nexport const one = 'one';\n", "eslint": "const one = 1;\nexport {};\n"}


def tsc(folder: Path) -> subprocess.CompletedProcess[str]:
    options = json.loads((PACKAGES / "tsconfig.json").read_text(encoding="utf-8"))
    options["include"] = [f"{folder}/*", str(PACKAGES / "node_modules" / "uplot" / "dist" / "uPlot.d.ts")]
    (folder.parent / "tsconfig.json").write_text(json.dumps(options), encoding="utf-8")
    return run("typescript/bin/tsc", "-p", str(folder.parent / "tsconfig.json"))


def eslint(folder: Path) -> subprocess.CompletedProcess[str]:
    # ESLint finds its configuration, and this its packages, beside the files.
    shutil.copy(PACKAGES / "eslint.config.js", folder.parent)
    if not (folder.parent / "node_modules").exists():
        (folder.parent / "node_modules").symlink_to(PACKAGES / "node_modules")
    return run("eslint/bin/eslint.js", str(folder), cwd=folder.parent)


def run(program: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [node(), str(PACKAGES / "node_modules" / program), *arguments]
    return subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True, timeout=120)


TOOLS = {"tsc": tsc, "eslint": eslint}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_sources_are_clean(tmp_path, tool: str) -> None:
    shutil.copytree(SOURCES, tmp_path / "js")
    done = TOOLS[tool](tmp_path / "js")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("tool", TOOLS)
def test_a_mistake_is_found(tmp_path, tool: str) -> None:
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "wrong.js").write_text(WRONG[tool], encoding="utf-8")
    done = TOOLS[tool](tmp_path / "js")
    assert done.returncode != 0
    assert "wrong.js" in done.stdout
