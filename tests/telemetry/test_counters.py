"""The counters: what each event adds to, and that no count is lost on the way to Prometheus."""

import asyncio
import sys
from threading import Thread

import pytest

from app.telemetry.counters import NOT_RECORDED, Counters
from app.telemetry.prometheus import Metrics


@pytest.fixture
def counters() -> Counters:
    return Counters()


def test_a_batch_counts_each_wait_and_one_computation(counters: Counters):
    counters.batched([1.0, 2.0, 2.5], 3.0, 7.0)
    assert counters.seconds == {"parse": 0, "queue": 3.5, "compute": 4.0, "serialise": 0}


def test_failed_work_counts_its_time(counters: Counters):
    def fails() -> None:
        raise ValueError("no such luck")

    with pytest.raises(ValueError, match="no such luck"):
        counters.timed("parse", fails)
    with pytest.raises(ValueError, match="no such luck"):
        counters.computed(fails)
    assert all(counters.seconds[stage] > 0 for stage in ("parse", "compute"))
    assert counters.executions == 1


def test_arguments_and_results_pass_through(counters: Counters):
    for one in (counters, NOT_RECORDED):
        assert one.timed("parse", divmod, 7, 2) == (3, 1)
        assert one.computed(divmod, 7, 2) == (3, 1)


def test_counts_are_reported_once():
    metrics = Metrics(int, int, int)
    counters = metrics.counters("square", "vjp")
    assert metrics.counters("square", "vjp") is counters

    async def publish() -> None:
        async with metrics.publishing():
            for _ in range(3):
                counters.answered(200, 0.0)
                counters.batched([1.0], 2.0, 3.0)
                metrics.publish()
            counters.answered(200, 0.0)

    asyncio.run(publish())
    text = metrics.text("")[0].decode()
    labels = '{op="square",operation="vjp"'
    assert f'pullback_requests_total{labels},status="200"}} 4.0\n' in text
    assert f"pullback_queue_seconds_total{labels}}} 3.0\n" in text
    assert f"pullback_compute_seconds_total{labels}}} 3.0\n" in text
    assert "pullback_parse_seconds_total{" not in text


@pytest.fixture
def threads_alternate():
    """Let the interpreter change between threads as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("threads_alternate")
def test_any_thread_may_be_the_first_to_count():
    """Large bodies are read on other threads, and the first of an operation comes while others are published."""
    metrics, names = Metrics(int, int, int), [f"op{i}" for i in range(1000)]
    found = dict[str, list[Counters]]()

    def count(thread: str) -> None:
        found[thread] = [metrics.counters(name, "vjp") for name in names]

    threads = [Thread(target=count, args=[name]) for name in "ab"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.publish()
    for thread in threads:
        thread.join()
    assert all(one is other for one, other in zip(found["a"], found["b"], strict=True))
