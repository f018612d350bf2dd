"""The store of jobs: what it keeps through the end of its processes, a full disk, and a clock that is set back."""

import dataclasses
import multiprocessing
import os
import random
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.errors import Gone, NotFound, Overloaded, TooManyRequests, Unprocessable
from app.kept.job_records import Answer, Bounds, Claim, JobRequest, Progress
from app.kept.job_store import JobStore

BOUNDS = Bounds(jobs_of_key=10, bytes_of_key=1 << 20, bytes=3 << 19, kept_s=1000.0)
REQUEST = JobRequest("/v1/ops/square/vjp", ((b"content-type", b"application/json"),), b"{}")
DONE = Answer(200, ((b"content-type", b"application/json"),), b"[1]")


@contextmanager
def opened(path: Path, bounds: Bounds = BOUNDS) -> Iterator[JobStore]:
    store = JobStore(path, bounds)
    yield store
    store.close()


def claimed(store: JobStore) -> Claim:
    claim = store.claim(1000)
    assert claim is not None
    return claim


def state_of(store: JobStore, name: str) -> str:
    return store.states([name], "")[0].state


def in_another_process(path: Path, work: Callable[[JobStore], object]) -> None:
    """Do ``work`` in a process that is killed then."""

    def run() -> None:
        work(JobStore(path, BOUNDS))
        os._exit(9)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 9


def test_a_job_runs_once_and_its_answer_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        name = store.add("", REQUEST).id
        assert store.answer(name, "") == (store.states([name], "")[0], None)
        claim = claimed(store)
        assert claim[:3] == (name, 1, REQUEST)
        assert store.claim(1000) is None
        store.finish(claim, DONE)
        store.finish(claim, Answer(500, (), b""))
        assert store.answer(name, "")[1] == DONE
    with opened(tmp_path) as store:
        assert store.answer(name, "")[1] == DONE
        store.cancel(name, "")
        with pytest.raises(Gone, match="no longer kept"):
            store.states([name], "")
        assert store.counts() == {"expired": 1, "bytes": BOUNDS.overhead}


def test_a_job_whose_process_ended_runs_again_once(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        name = store.add("", REQUEST).id
        first = claimed(store)
        store.give_back(first, "it ended")
        assert state_of(store, name) == "waiting"
        second = claimed(store)
        store.finish(first, DONE)
        assert state_of(store, name) == "running"
        store.give_back(second, "it ended with SIGSEGV")
        [state] = store.states([name], "")
        assert state[1:4] == ("failed", None, "it ended with SIGSEGV, in each of its 2 runs")


def test_the_jobs_of_a_killed_service_run_again_once(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        names = [store.add("", REQUEST).id for _ in range(2)]
        in_another_process(tmp_path, lambda other: (other.claim(5), other.claim(5)))
        assert [state_of(store, name) for name in names] == ["running", "running"]
        store.sweep()
        assert [state_of(store, name) for name in names] == ["waiting", "waiting"]
        in_another_process(tmp_path, claimed)
        store.sweep()
        assert [state_of(store, name) for name in names] == ["failed", "waiting"]
        assert len([*tmp_path.glob("*.worker")]) == 1


def test_a_stopped_service_leaves_its_jobs_waiting(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        name = store.add("", REQUEST).id
        for _ in range(3):
            with opened(tmp_path) as other:
                assert claimed(other).runs == 1
        assert state_of(store, name) == "waiting"


def test_a_running_job_that_is_cancelled_has_no_answer(tmp_path: Path) -> None:
    with opened(tmp_path) as store, opened(tmp_path) as other:
        name = store.add("", REQUEST).id
        claim = claimed(store)
        version = store.version()
        other.cancel(name, "")
        assert store.version() != version
        assert store.running([claim]) == [False]
        assert store.ended([name]) == [name]
        store.finish(claim, DONE)
        assert store.answer(name, "")[1] is None
        assert state_of(store, name) == "cancelled"


def test_an_idempotency_key_finds_the_same_job(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        state = store.add("", REQUEST, "a")
        assert store.add("", REQUEST._replace(headers=(*REQUEST.headers, (b"user-agent", b"x"))), "a") == state
        assert store.add("", REQUEST, "b").id != state.id
        assert store.add("other", REQUEST, "a").id != state.id
        for other in (REQUEST._replace(body=b"[]"), REQUEST._replace(target="/"), REQUEST._replace(headers=())):
            with pytest.raises(Unprocessable, match="Idempotency-Key"):
                store.add("", other, "a")
        store.finish(claimed(store), DONE)
        assert store.add("", REQUEST, "a").state == "done"
        store.cancel(state.id, "")
        assert store.add("", REQUEST, "a").state == "waiting"


def test_progress_is_that_of_a_job_that_runs(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        name = store.add("", REQUEST).id
        claim = claimed(store)
        assert store.states([name], "")[0].progress is None
        store.note(claim, Progress(20, 40))
        assert store.states([name], "")[0].progress == (20, 40)
        store.finish(claim, DONE)
        store.note(claim, Progress(40, 40))
        assert store.states([name], "")[0].progress is None


def test_keys_take_turns_and_see_only_their_own(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        first = [store.add("one", REQUEST).id for _ in range(4)]
        second = [store.add("two", REQUEST).id for _ in range(2)]
        assert [state.position for state in store.states(first, "one")] == [1, 3, 5, 6]
        assert [state.position for state in store.states(second, "two")] == [2, 4]
        assert [state.id for state in store.latest("two")] == second[::-1]
        claims = [claimed(store) for _ in range(6)]
        assert [claim.id for claim in claims] == [first[0], second[0], first[1], second[1], first[2], first[3]]
        assert [claim.key for claim in claims] == ["one", "two", "one", "two", "one", "one"]
        for work in (store.cancel, store.answer, lambda name, key: store.states([name], key)):
            with pytest.raises(NotFound):
                work(first[0], "two")
        # Those that run are not before it in the line.
        waiting = [store.add("three", REQUEST).id for _ in range(2)]
        assert store.states(waiting, "three")[1].position == 2


def test_no_more_jobs_run_than_are_allowed(tmp_path: Path) -> None:
    with opened(tmp_path) as store, opened(tmp_path) as other:
        for _ in range(3):
            store.add("", REQUEST)
        assert store.claim(2) is not None
        assert other.claim(2) is not None
        assert store.claim(2) is other.claim(2) is None


def test_bounds_of_a_key_and_of_the_store(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        names = [store.add("", REQUEST).id for _ in range(10)]
        with pytest.raises(TooManyRequests, match="at most 10 jobs that wait or run"):
            store.add("", REQUEST)
        store.cancel(names[0], "")
        large = REQUEST._replace(body=bytes(1 << 19))
        store.add("", large)
        for name in names[1:]:
            store.cancel(name, "")
        with pytest.raises(TooManyRequests, match=r"at most 1048576 bytes of jobs.*DELETE /v1/jobs"):
            store.add("", large)
        store.add("two", large)
        with pytest.raises(Overloaded, match="the store of jobs is full"):
            store.add("three", large)
        claim = claimed(store)
        with pytest.raises(TooManyRequests):
            store.finish(claim, DONE._replace(body=bytes(1 << 20)))
        store.fail(claim, "no room")
        assert store.add("three", large).state == "waiting"


def test_answers_expire_by_a_clock_that_only_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = Bounds(10, 1 << 20, 1 << 20, kept_s=0.2)
    with opened(tmp_path, bounds) as store:
        name = store.add("", REQUEST, "a").id
        store.finish(claimed(store), DONE)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        store.sweep()
        assert store.answer(name, "")[1] == DONE
        time.sleep(0.25)
        store.sweep()
        with pytest.raises(Gone, match="no longer kept"):
            store.answer(name, "")
        assert store.add("", REQUEST, "a").state == "waiting"
        time.sleep(0.25)
        store.sweep()
        with pytest.raises(NotFound):
            store.answer(name, "")
        assert store.counts()["waiting"] == 1


def test_a_full_disk_refuses_jobs_and_loses_none(tmp_path: Path) -> None:
    def run() -> None:
        with opened(tmp_path) as store:
            name = store.add("", REQUEST).id
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
            with pytest.raises(Overloaded, match="jobs cannot be kept"):
                store.add("", REQUEST._replace(body=bytes(1 << 18)))
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            assert [state.id for state in store.latest("")] == [name]
            assert store.add("", REQUEST).state == "waiting"

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_key_has_all_places_until_another_waits(tmp_path: Path) -> None:
    with opened(tmp_path) as store, opened(tmp_path) as other:
        alice = [store.add("alice", REQUEST).id for _ in range(3)]
        claims = [store.claim(2), store.claim(2)]
        assert [claim and claim.id for claim in claims] == alice[:2]
        assert store.claim(2) is None
        bob = other.add("bob", REQUEST).id
        assert other.claim(2) is other.claim(2) is None
        # The latest job of alice waits again, and has its place until its process has ended.
        running = [claim for claim in claims if claim]
        assert store.running(running) == [True, False]
        assert [state.position for state in store.states(alice, "alice")] == [None, 2, 3]
        store.finish(running[1], DONE)
        assert store.claim(2) is None
        store.leave(running[1])
        claim = store.claim(2)
        assert claim is not None
        assert claim.id == bob
        # Each has one place. None gives way, and bob's comes to alice when no job of bob waits.
        for key in ("alice", "bob"):
            store.add(key, REQUEST)
        assert store.claim(2) is None
        assert store.running([running[0], claim]) == [True, True]
        store.finish(claim, DONE)
        last = [store.claim(2) for _ in range(2)]
        assert [each and each.key for each in last] == ["bob", None]
        assert last[0] is not None
        store.finish(last[0], DONE)
        again = store.claim(2)
        assert again is not None
        assert again[:2] == (alice[1], 1)


def test_the_position_is_that_in_which_jobs_begin(tmp_path: Path) -> None:
    generator, bounds = random.Random(0), dataclasses.replace(BOUNDS, jobs_of_key=1000)
    keys = ["a", "b", "c", "d"]
    with opened(tmp_path, bounds) as store:
        for _ in range(40):
            waiting = [(store.add(key, REQUEST).id, key) for key in generator.choices(keys, k=generator.randrange(8))]
            positions = {name: store.states([name], key)[0].position for name, key in waiting}
            expected = sorted(positions, key=lambda name: positions[name] or 0)
            assert sorted(filter(None, positions.values())) == [*range(1, len(waiting) + 1)]
            claims = [claimed(store) for _ in waiting]
            assert [claim.id for claim in claims] == expected
            # Some run on, so that keys have different numbers of places.
            ended = [claim for claim in claims if generator.random() < 0.7]
            for claim in ended:
                store.finish(claim, DONE)


def test_the_place_of_a_cancelled_job_is_free_when_its_process_has_ended(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        name = store.add("", REQUEST).id
        store.add("", REQUEST)
        claim = store.claim(1)
        assert claim is not None
        store.cancel(name, "")
        assert state_of(store, name) == "cancelled"
        assert store.claim(1) is None
        store.leave(claim)
        assert store.claim(1) is not None


def test_the_place_of_a_cancelled_job_is_free_when_the_service_was_killed(tmp_path: Path) -> None:
    def cancel(store: JobStore) -> None:
        name = store.add("", REQUEST).id
        claimed(store)
        store.cancel(name, "")

    in_another_process(tmp_path, cancel)
    with opened(tmp_path) as store:
        store.add("", REQUEST)
        assert store.claim(1) is None
        store.sweep()
        assert store.claim(1) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_an_answer_can_be_freed_on_a_full_disk(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("may not mount a disk")
    try:
        with opened(tmp_path / "jobs", Bounds(10, 1 << 30, 1 << 30, 1000.0)) as store:
            name = store.add("", REQUEST).id
            store.finish(claimed(store), Answer(200, (), bytes(1 << 20)))
            fill = (tmp_path / "fill").open("wb", buffering=0)
            with fill, suppress(OSError):
                while True:
                    fill.write(bytes(1 << 12))
            with pytest.raises(Overloaded):
                store.add("", JobRequest("/", (), bytes(1 << 20)))
            store.cancel(name, "")
            with pytest.raises(Gone):
                store.states([name], "")
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
