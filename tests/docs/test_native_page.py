"""Build and serve the two files on the page about C++ ops, and check the page's claims."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from ops import discover, load
from pullback.ops import _native
from tests.conftest import ROOT, Serve, Start
from tests.docs.test_docs import (
    ADD_A_NATIVE_OP,
    FENCE,
    blocks,
    check_passes,
    differences,
    needs_curl,
    quoted,
    rows,
    text_of,
)
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

FILE = re.compile(r"`my_ops/(\w+\.\w+)`")
SHOWN = ("cpp", "python")


def page_files() -> dict[str, str]:
    """Return the files on the page, by the names in the text before them."""
    files: dict[str, str] = {}
    text, end = text_of(ADD_A_NATIVE_OP), 0
    for fence in FENCE.finditer(text):
        if fence[1] in SHOWN:
            files[FILE.findall(text[end : fence.start()])[-1]] = fence[2]
        end = fence.end()
    return files


def mistakes() -> list[tuple[str, list[str]]]:
    """Return the page's wrong versions of its second file, with their error messages."""
    page, found = page_files()["softsign.py"], list[tuple[str, list[str]]]()
    for line, instead, words in rows(ADD_A_NATIVE_OP, "line"):
        assert page.count(quoted(line)[0]) == 1
        found.append((page.replace(quoted(line)[0], quoted(instead)[0]), quoted(words)))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the page's files, built."""
    folder = tmp_path_factory.mktemp("my_ops")
    for name, body in page_files().items():
        (folder / name).write_text(body)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "native", f"PULLBACK_OPS_PATH={folder}"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        yield folder
    finally:
        (ROOT / "build" / "softsign.so").unlink(missing_ok=True)


@needs_curl
def test_the_op_of_the_page_works_as_described(folder: Path, serve: Serve) -> None:
    service = serve(OPS_PATH=str(folder))
    assert differences(ADD_A_NATIVE_OP, service.url) == []


def test_the_check_of_the_op_of_the_page_passes(folder: Path, serve: Serve) -> None:
    check_passes("softsign", serve(OPS_PATH=str(folder)).url)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("page", "words"), mistakes(), ids=lambda value: "" if isinstance(value, str) else value[0])
def test_a_mistake_gives_the_error_on_the_page(page: str, words: list[str], start: Start, tmp_path: Path) -> None:
    (tmp_path / "softsign.py").write_text(page)
    with start(OPS_PATH=str(tmp_path)).wait_until_ready().client() as client:
        answered = client.post("/v1/ops/softsign/gradients", json={"inputs": {"x": [1, 2]}, "order": 2})
    assert answered.status_code == 500
    assert [word for word in words if word not in answered.json()["detail"]] == []


def test_the_kernel_of_the_page_refuses_a_cotangent_of_another_shape(folder: Path) -> None:
    kernels = load(str(folder / "softsign.py"))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"dy: expected the shape of x, \[3\], got \[2\]"):
        kernels.my_ops_softsign_grad([1.0, 2.0, 3.0], [1.0, 2.0])


def test_an_op_that_is_not_built_gives_the_error_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "BUILD", tmp_path)
    (folder := tmp_path / "my_ops").mkdir()
    (folder / "softsign.py").write_text(page_files()["softsign.py"])
    assert [f"{one.reason}\n" for one in discover([folder]).unavailable] == blocks(ADD_A_NATIVE_OP, "text")
