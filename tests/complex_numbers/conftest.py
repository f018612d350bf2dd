"""The pages of complex ops, in one folder for all tests."""

from pathlib import Path

import pytest

from tests.complex_numbers.pages import write_pages


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pages(tmp_path_factory.mktemp("complex"))
