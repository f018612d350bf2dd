"""The tests of the C++ ops, run with the kernels that ``make sanitize`` has built."""

import sys

import pytest

from ops import _native

_native.BUILD = _native.BUILD / "sanitized"
# Nothing is captured: what the sanitizers report, they write before they end the process.
TESTS = ["tests/ops/test_roi_pool.py", "tests/ops/test_native.py"]
sys.exit(pytest.main(["-n", "0", "--capture=no", "-p", "no:cacheprovider", *TESTS]))
