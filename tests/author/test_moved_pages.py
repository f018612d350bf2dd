"""A baseline of a page: a refactoring that only changes rounding is reported and passes, a wrong gradient fails."""

from pathlib import Path
from typing import Any

import pytest

from tests.author.conftest import RIGHT, WRONG

pytestmark = pytest.mark.thorough


def test_what_a_refactoring_moves(here: Any, folder: Any, tmp_path: Path) -> None:
    page, baseline = tmp_path / "cube.py", tmp_path / "baseline.json"
    source = (folder / "my_ops" / "cube.py").read_text()

    def check(text: str, option: str):
        page.write_text(text)
        return here("pullback", "check", str(page), "--check", "value", "--check", "derivative", option, str(baseline))

    assert check(source, "--save").code == 0
    # Some numbers then differ by a unit in the last place.
    rounded = check(source.replace("return x * x * x", "return 3 * x * x * x / 3"), "--against")
    assert rounded.code == 0, rounded
    assert "MOVED cube (the page has changed)" in rounded.out
    assert "numbers moved by up to 1 ULP, 0." in rounded.out
    assert "1 of 1 op moved, 0 beyond the error bars" in rounded.out
    wrong = check(source.replace(RIGHT, WRONG), "--against")
    assert wrong.code == 1
    assert "derivative, dy/dx, order 1, float64, graph, cpu: pass -> fail" in wrong.out
    assert "1 beyond the error bars" in wrong.out
    assert Path(baseline).stat().st_size < 1 << 17
