"""What ``make sanitize`` runs begins: with the usual kernels, it finds its tests."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
def test_the_tests_with_sanitized_kernels_are_found() -> None:
    command = [sys.executable, "-m", "tests.ops.sanitized", "build", "--collect-only"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "test_roi_pool.py" in listed.stdout
