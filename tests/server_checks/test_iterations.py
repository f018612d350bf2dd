"""Whether a function iterates is seen by the calls that it makes."""

import math

from pullback.gradcheck.of.local import iterates


def root(a: float) -> float:
    x = 1.0
    while abs(step := (x * x - a) / (2 * x)) > 1e-6:
        x -= step
    return x


def test_a_loop_that_ends_by_its_numbers_is_seen() -> None:
    assert iterates(root, [1.5, 100.0])
    assert not iterates(math.sin, [1.5, 100.0])
