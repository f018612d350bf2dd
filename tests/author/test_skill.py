"""``pullback skill``: its page passes its checks, and fails with a wrong formula, as the skill says."""

import re
from pathlib import Path

import pytest

from tests.author.conftest import Ran, pullback

RIGHT, WRONG = "return dy / (1 + tf.abs(x)) ** 2", "return 1.09 * dy / (1 + tf.abs(x)) ** 2"
QUICK = ("--dtype", "float64", "--mode", "graph")


def checked(folder: Path, page: str) -> Ran:
    """Check a page alone."""
    (folder / "softsign.py").write_text(page)
    return pullback(folder, "pullback", "check", "softsign.py", *QUICK)


@pytest.mark.thorough
def test_the_page_of_the_skill_passes_and_a_mistake_in_it_fails(tmp_path: Path) -> None:
    skill = pullback(tmp_path, "pullback", "skill").out
    assert skill.startswith("---\nname: pullback\ndescription: ")
    assert len(skill.splitlines()) < 150
    [page] = re.findall(r"```python\n(.*?)```", skill, re.DOTALL)
    right = checked(tmp_path, page)
    assert (right.code, "softsign: pass (" in right.out) == (0, True), right.out + right.error
    assert page.count(RIGHT) == 1
    wrong = checked(tmp_path, page.replace(RIGHT, WRONG))
    assert wrong.code == 1
    assert "all are 1.09 times what they should be" in wrong.out


def test_the_skill_is_written_once(tmp_path: Path) -> None:
    written = pullback(tmp_path, "pullback", "skill", "--to", "skills/pullback")
    assert written.out == "Wrote skills/pullback/SKILL.md.\n"
    assert (tmp_path / "skills/pullback/SKILL.md").read_text() == pullback(tmp_path, "pullback", "skill").out
    again = pullback(tmp_path, "pullback", "skill", "--to", "skills/pullback")
    assert again.code == 2
    assert "exists" in again.error
