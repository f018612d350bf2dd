"""Run the tests of the C++ ops with the kernels in a folder: ``make sanitize`` builds some that check every access."""

import sys
from pathlib import Path

import pytest

from pullback.ops import _native

TESTS = ["tests/ops/test_roi_pool.py", "tests/ops/test_native.py"]
# The pytest plugin of this package is imported above, before pytest could rewrite its assertions.
IMPORTED = "ignore:Module already imported"

folder, *options = sys.argv[1:]
_native.BUILD = Path(folder).resolve()
# Capture nothing: the sanitizers write their report just before they end the process.
sys.exit(pytest.main(["-n", "0", "--capture=no", "-p", "no:cacheprovider", "-W", IMPORTED, *TESTS, *options]))
