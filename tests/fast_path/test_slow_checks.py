"""An author's check of the values that takes long does not run on the event loop again."""

import json

from tests.fast_path.both import REPEATS, Both
from tests.fast_path.wire import post


def checked(first: float) -> bytes:
    return post("/v1/ops/laborious/forward", json.dumps({"inputs": {"x": [first, 0.25]}}).encode())


def test_a_slow_check_leaves_the_fast_path(both: Both) -> None:
    both.warm(lambda number: checked(number / 512))
    with both.takes(REPEATS):
        both.repeat(lambda number: checked(number / 1024))
    both.same(checked(1.5))  # nothing says before that this check is slow
    with both.takes(0, most=0):
        both.repeat(lambda number: checked(2.5 + number))
