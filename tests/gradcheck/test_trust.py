"""The checker finds every planted fault, and is silent on right ops. ``make trust`` does this with many seeds."""

import pytest

from tests.gradcheck.hard import HARD
from tests.gradcheck.trust import Tally, of_right, of_wrong
from tests.gradcheck.wrong import WRONG

# A share of the ops, so that the tests take a minute: every 96th wrong one and every 256th right one. `make trust` runs
# all of them.
WRONG_SHARE, RIGHT_SHARE = 96, 256


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WRONG)[::WRONG_SHARE])
def test_a_planted_fault_is_found_by_a_check_that_is_meant_to(name: str) -> None:
    assert of_wrong(name, seed=0).lines == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(HARD)[::RIGHT_SHARE])
def test_a_right_op_raises_no_alarm(name: str) -> None:
    tally = of_right(name, seed=0)
    assert not tally.undeserved, tally.lines


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [("shifted_sum", 11), ("offset_by_1e9", 12)])
def test_noise_at_special_points_raises_no_alarm(name: str, seed: int) -> None:
    """Numbers that are 0 show no noise, and a few numbers do not show that it is that of a narrower dtype."""
    tally = of_right(name, seed)
    assert not tally.undeserved, tally.lines


SEEDS = {
    "half precision without a digit": ("fast_sine", 3),
    "directions beside one that overflows": ("overflowing_wave", 3),
    "a slope across thousands of jumps": ("linear_spline", 2),
    "a surrogate larger than the value": ("round_straight_through", 1),
}


@pytest.mark.share(4)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), SEEDS.values(), ids=SEEDS)
def test_alarms_that_few_seeds_raise_are_not_raised(name: str, seed: int) -> None:
    tally = of_right(name, seed)
    assert not tally.undeserved, tally.lines


@pytest.mark.thorough
@pytest.mark.slow
def test_the_table_counts_every_check() -> None:
    tally = Tally()
    for one in (of_wrong(next(iter(WRONG)), seed=1), of_right(next(iter(HARD)), seed=1)):
        tally.add(one)
    header, *rows = tally.table()
    total = dict(zip(header.split()[1:], map(int, rows[-1].split()[1:]), strict=True))
    assert total["caught"] + total["missed"] == 1
    assert total["runs"] >= 10
