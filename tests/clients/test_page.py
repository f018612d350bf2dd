"""docs/clients.md: its examples of a client print the output on the page, in the environment of that client."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
ON_THE_PAGE = "http://127.0.0.1:8000"
# A program on the page, and its output.
EXAMPLE = re.compile(r"```python\n(.*?)```\n+```text\n(.*?)```", re.DOTALL)
LINES = 16


def test_the_examples_print_the_output_on_the_page(url, client):
    run_examples(f"<!-- {client} -->", url)


def test_the_examples_with_a_key_print_the_output_on_the_page(guarded_url, key, client):
    mark = f"<!-- {client} with a key -->"
    if mark not in PAGE.read_text(encoding="utf-8"):
        pytest.skip(f"the page has no example of {client} with a key")
    run_examples(mark, guarded_url, PULLBACK_KEY=key)


def run_examples(mark: str, url: str, **environment: str) -> None:
    section = PAGE.read_text(encoding="utf-8").split(mark)[1].split("<!-- ")[0]
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
