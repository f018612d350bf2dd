"""Shares of the cases of a test: ``make test-all`` runs a few of each kind, and ``make test-thorough`` the others."""

from collections.abc import Mapping
from typing import Any

import pytest


def share(cases: Mapping[str, Any], one_in: int) -> list[Any]:
    """Return the cases as parameters; all but one in ``one_in`` are marked thorough."""
    return [
        pytest.param(case, id=name, marks=pytest.mark.thorough if i % one_in else ())
        for i, (name, case) in enumerate(cases.items())
    ]
