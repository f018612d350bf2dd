"""What all tests of evaluations need."""

import pytest

from app.autodiff import row_trial


@pytest.fixture(autouse=True)
def _no_row_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine makes no row one that takes long."""
    monkeypatch.setattr(row_trial, "LONGEST_S", 60.0)
