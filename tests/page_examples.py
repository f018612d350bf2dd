"""Programs on a page of the docs, which print the output on the page. This module needs nothing but pytest's Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

ON_THE_PAGE = "http://127.0.0.1:8000"
# A program on the page, and its output.
EXAMPLE = re.compile(r"```python\n(.*?)```\n+```text\n(.*?)```", re.DOTALL)
LINES = 16


def run_examples(page: Path, mark: str, url: str, **environment: str) -> None:
    """Run the programs after a mark, up to the next mark, with the URL of a service; compare what they print."""
    section = page.read_text(encoding="utf-8").split(mark)[1].split("<!-- ")[0]
    examples = EXAMPLE.findall(section)
    assert examples
    for program, output in examples:
        assert len(program.splitlines()) <= LINES
        here = program.replace(ON_THE_PAGE, url)
        here = here.replace(ON_THE_PAGE.removeprefix("http://"), url.removeprefix("http://"))
        done = subprocess.run(
            [sys.executable, "-P", "-c", here],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == output
