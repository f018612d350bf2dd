"""The page about explaining a model prints what it says, with the classifier of another page.

``tests.frameworks`` runs its part in JAX.
"""

import sys

import pytest

from tests.conftest import Serve
from tests.docs.test_docs import EXPLAIN, OP_FILES, blocks, differences, needs_curl, run


@pytest.fixture(scope="module")
def url(serve_for_module: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    (folder / "classifier.py").write_text(OP_FILES["classifier"])
    return serve_for_module(OPS_PATH=str(folder)).url


def test_the_program_explains_the_classifier(url: str) -> None:
    program, output = blocks(EXPLAIN, "python")[0], blocks(EXPLAIN, "text")[0]
    assert run([sys.executable, "-W", "error", "-c", program], url) == output


@needs_curl
def test_the_commands_explain_it_too(url: str) -> None:
    assert differences(EXPLAIN, url) == []
