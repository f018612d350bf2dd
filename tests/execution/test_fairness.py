"""Fairness: what the places of a queue guarantee to each owner, whatever the others do."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import Overloaded
from app.execution.tickets import Admission
from app.telemetry.accounts import Owner


def fill(places: Admission, owner: str, count: int) -> int:
    """Take all free places; return their number."""
    for taken in range(count):
        try:
            places.take(Owner(owner))
        except Overloaded:
            return taken
    return count


def takes(places: Admission, owner: str) -> bool:
    return fill(places, owner, 1) == 1


@pytest.mark.parametrize(("count", "alone"), [(1, 1), (2, 1), (3, 2), (1024, 512)])
def test_a_flood_at_its_limit_leaves_room_for_others(count: int, alone: int):
    places = Admission(count)
    assert fill(places, "flood", count) == alone
    if count > 1:
        places.take(Owner("other"))
        places.give(Owner("other"))
    for _ in range(alone):
        places.give(Owner("flood"))
    assert fill(places, "other", count) == alone


def test_floods_of_many_ops_leave_room_for_one_more():
    places = Admission(100)
    assert {name: fill(places, name, 100) for name in "abc"} == {"a": 50, "b": 25, "c": 13}
    places.take(Owner("d"))


@pytest.mark.parametrize("count", [1, 2, 7, 16, 100, 1024])
def test_floods_by_any_number_of_owners_leave_a_place_for_a_new_one(count: int):
    places = Admission(count)
    for number in range(places.spare):
        assert fill(places, f"flood{number}", count) >= 1
    assert places.spare >= min(count, 2, count // 8)
    assert places.taken <= count


def test_many_owners_have_a_place_each_in_a_queue_of_the_default_size():
    places = Admission(1024)
    taken = [fill(places, f"flood{number}", 1024) for number in range(128)]
    assert taken[:4] == [512, 256, 128, 4]
    assert min(taken) == 1


PROPERTY = settings(deadline=None)
OWNERS = [f"op{number}" for number in range(40)]


@PROPERTY
@given(
    count=st.integers(1, 300),
    steps=st.lists(
        st.tuples(st.sampled_from(OWNERS), st.booleans(), st.integers(1, 200)),
        max_size=120,
    ),
)
def test_any_sequence_keeps_the_promises(count: int, steps: list[tuple[str, bool, int]]):
    """Each step takes or gives so many places of an owner."""
    places, held = Admission(count), Counter[str]()
    for owner, is_take, times in steps:
        for _ in range(times):
            free, own, owners = count - held.total(), held[owner], len(+held)
            if is_take:
                is_promised = free > 0 if own == 0 else free > own and free > places.spare - owners
                assert takes(places, owner) == is_promised
                held[owner] += is_promised
                # Nobody is shut out before there are many owners.
                assert own or owners >= places.spare or is_promised
            elif own:
                places.give(Owner(owner))
                held[owner] -= 1
            assert places.taken == held.total() <= count
    for owner, own in held.items():
        for _ in range(own):
            places.give(Owner(owner))
    assert fill(places, "alone", count) == (count + 1) // 2


@PROPERTY
@given(count=st.integers(8, 2000), owners=st.integers(1, 12))
def test_owners_that_take_in_turn_have_equal_shares(count: int, owners: int):
    places, held = Admission(count), Counter[str]()
    for _ in range(count):
        for owner in OWNERS[:owners]:
            held[owner] += takes(places, owner)
    assert max(held.values()) - min(held.values()) <= 1
    assert held.total() >= min(count // 2, count - places.spare)
