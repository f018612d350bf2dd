"""The mapping of what a process has in memory, against a list that is searched."""

import math
import random
import threading
import time

import pytest

from app.kept import memory
from app.kept.memory import Held, Memory, Recent
from tests.patience import PATIENCE_S, PAUSE_S

# So many bytes that no two keys have as many.
LIMIT, KEYS = 10**9, ("", "alice", "bob")


class Model:
    """What should be kept: a place and a size for each value, the least recently used first."""

    def __init__(self) -> None:
        self.places = list[tuple[Held[int], int]]()

    def size(self, key: str | None = None) -> int:
        return sum(size for held, size in self.places if key in (None, held.key))

    def add(self, new: Held[int], size: int) -> bool:
        if size > LIMIT:
            return False
        while size + self.size() > LIMIT:
            largest = [key for key in KEYS if self.size(key) == max(map(self.size, KEYS))]
            oldest = [next(place for place in self.places if place[0].key == key) for key in largest]
            gone = [place for place in oldest if place[0].is_gone]
            assert gone, "expected the least recently used one of a key with the most to go"
            self.places.remove(gone[0])
        self.places.append((new, size))
        return True


@pytest.mark.parametrize("seed", range(50))
def test_the_least_used_of_the_key_with_the_most_goes(seed: int) -> None:
    rng, one, model = random.Random(seed), Memory[int](LIMIT), Model()
    for number in range(100):
        key = rng.choice(KEYS)
        if rng.random() < 0.5 and model.places:
            model.places.append(model.places.pop(rng.randrange(len(model.places))))
            held, _ = model.places[-1]
            assert one.find(held.id, held.key) is held
            assert one.find(held.id, f"not {held.key}") is None
            continue
        new, size = Held[int](str(number), key), rng.randint(1, LIMIT + LIMIT // 20)
        has_room = one.reserve(new, size)
        if has_room:
            one.keep(new, number)
        assert model.add(new, size) == has_room
        assert one.size == model.size() <= LIMIT
        assert len(one) == len(model.places)
        for held, _ in model.places:
            assert not held.is_gone
            assert held.value == int(held.id)


def test_a_value_goes_when_it_ends_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SWEPT_S", 0.0)
    one, now = Memory[int](LIMIT), time.monotonic()
    places = [Held[int](str(end), "", now + end) for end in (0.05, 0.1, 1000.0, math.inf)]
    for held in places:
        assert one.reserve(held, 1)
        one.keep(held, 0)
    while len(one) > 2:
        assert time.monotonic() < now + PATIENCE_S
        time.sleep(PAUSE_S)
    assert one.size == 2
    assert [held.is_gone for held in places] == [True, True, False, False]
    assert places[2].expires_s > 900


def test_a_place_that_has_ended_is_not_found() -> None:
    one, held = Memory[int](LIMIT), Held[int]("a", "", time.monotonic())
    assert one.reserve(held, 1)
    one.keep(held, 1)
    assert one.find("a", "") is None
    assert one.size == 0
    assert not one.reserve(held, 1)


def test_two_threads_that_read_a_file_get_one_value() -> None:
    one, found, both = Recent[object](lambda name: True, LIMIT), list[object](), threading.Barrier(2)

    def add() -> None:
        both.wait()
        found.append(one.add("a", object()))

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1]
    assert one.has("a", found[0])
