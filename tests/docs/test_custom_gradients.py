"""The programs of docs/custom-gradients.md print what is on the page, one after the other in one process."""

import contextlib
import io
import re

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "custom-gradients.md"
# A program, and its output if it prints any.
PROGRAM = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.slow
def test_the_programs_print_the_output_on_the_page() -> None:
    names: dict[str, object] = {}
    programs = PROGRAM.findall(PAGE.read_text(encoding="utf-8"))
    assert len(programs) > 7
    for program, output in programs:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(program, PAGE, "exec"), names)
        assert printed.getvalue() == output
