"""Run the tests of the C++ ops with the kernels that ``make sanitize`` builds."""

import sys

import pytest

from pullback.ops import _native

_native.BUILD = _native.BUILD / "sanitized"
# Capture nothing: the sanitizers write their report just before they end the process.
TESTS = ["tests/ops/test_roi_pool.py", "tests/ops/test_native.py"]
sys.exit(pytest.main(["-n", "0", "--capture=no", "-p", "no:cacheprovider", *TESTS]))
