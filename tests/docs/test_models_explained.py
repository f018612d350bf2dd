"""The program of the page about explaining a model prints what the page says, with the classifier of another page."""

import sys
from pathlib import Path

from tests.conftest import Serve
from tests.docs.test_docs import blocks, op_files, run


def test_the_program_explains_the_classifier(serve: Serve, tmp_path: Path) -> None:
    page = "docs/explain-a-model.md"
    (tmp_path / "classifier.py").write_text(op_files()["classifier"])
    [program], [output] = blocks(page, "python"), blocks(page, "text")
    assert run([sys.executable, "-W", "error", "-c", program], serve(OPS_PATH=str(tmp_path)).url) == output
