"""A page with two libraries: that of its folder, of ``pullback native``, and that of the clone, of ``make native``."""

import os
import re
from pathlib import Path

import pytest

from pullback.ops import _native
from pullback.ops._native import NotBuilt, load


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with two libraries that do not load, whose error says which was chosen."""
    monkeypatch.setattr(_native, "BUILD", tmp_path / "build")
    for folder in (tmp_path / "build", tmp_path / "my_ops" / "build"):
        folder.mkdir(parents=True)
        (folder / "torn.so").write_bytes(b"\x7fELF, and no more")
    return tmp_path / "my_ops" / "torn.py"


def chosen(page: Path) -> str:
    with pytest.raises(NotBuilt, match="file too short") as raised:
        load(str(page))
    found = re.search(r"\S+(?=/torn\.so: file too short)", str(raised.value))
    assert found
    return str(Path(found[0]).relative_to(page.parents[1]))


@pytest.mark.parametrize("newer", ["build", "my_ops/build"])
def test_the_newer_one_is_loaded(page: Path, newer: str) -> None:
    for folder in ("build", "my_ops/build"):
        at = 1e9 + (folder == newer)
        os.utime(page.parents[1] / folder / "torn.so", (at, at))
    assert chosen(page) == newer


def test_one_for_another_tensorflow_is_not(page: Path) -> None:
    (page.parent / "build" / "tensorflow.flags").write_text("2.5.0\n")
    os.utime(page.parent / "build" / "torn.so", (2e9, 2e9))
    assert chosen(page) == "build"
    (page.parents[1] / "build" / "tensorflow.flags").write_text("2.6.0\n")
    with pytest.raises(NotBuilt, match=r"torn\.so is for TensorFlow 2\.5\.0, not for"):
        load(str(page))
