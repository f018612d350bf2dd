"""The examples of a framework in the docs print the output on the page, in its environment."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.page_examples import run_examples

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
# The pages of those that are on others.
PAGES = {
    "openmdao": ("solvers.md",),
    "casadi": ("solvers.md",),
    "philote": (),  # test_philote.py runs it, with a server
    "ase": ("forces.md",),
    "jax": (PAGE.name, "explain-a-model.md"),
}
# A longer program, and its output on the page.
PROGRAM = re.compile(r"<!-- (\w+): (\w+\.py) -->\n```text\n(.*?)```", re.DOTALL)
PROGRAMS = {framework: (file, output) for framework, file, output in PROGRAM.findall(PAGE.read_text(encoding="utf-8"))}


def test_the_examples_print_the_output_on_the_page(url: str, framework: str) -> None:
    for page in PAGES.get(framework, (PAGE.name,)):
        run_examples(PAGE.with_name(page), f"<!-- {framework} -->", url)


def test_the_longer_example_prints_the_output_on_the_page(url: str, framework: str) -> None:
    if framework not in PROGRAMS:
        pytest.skip("this framework has no longer example")
    file, output = PROGRAMS[framework]
    done = subprocess.run(
        [sys.executable, "-P", PAGE.with_name("examples") / file],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PULLBACK_URL": url},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == output
