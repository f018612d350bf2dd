"""The counters: what is added to what, and that nothing is lost on the way to Prometheus."""

import asyncio

import pytest
from prometheus_client import Histogram

from app.execution.batching import Batches
from app.execution.lane import Lane
from app.execution.lifecycle import Lifecycle
from app.telemetry.counters import NOT_RECORDED, RecordedCounters
from app.telemetry.prometheus import Metrics


@pytest.fixture
def counters() -> RecordedCounters:
    def histogram() -> Histogram:
        return Histogram("a_histogram", "Anything.", registry=None)

    return RecordedCounters(histogram, histogram)


def test_each_call_of_a_batch_has_waited_and_all_were_computed_once(counters: RecordedCounters):
    counters.batched([1.0, 2.0, 2.5], 3.0, 7.0)
    assert counters.seconds == {"parse": 0, "queue": 3.5, "compute": 4.0, "serialise": 0}


def test_work_that_fails_has_taken_its_time(counters: RecordedCounters):
    def fails() -> None:
        raise ValueError("no such luck")

    with pytest.raises(ValueError, match="no such luck"):
        counters.timed("parse", fails)
    with pytest.raises(ValueError, match="no such luck"):
        counters.queued(fails)()
    assert all(counters.seconds[stage] > 0 for stage in ("parse", "queue", "compute"))


def test_arguments_and_results_pass_through(counters: RecordedCounters):
    for one in (counters, NOT_RECORDED):
        assert one.timed("parse", divmod, 7, 2) == (3, 1)
        assert one.queued(divmod)(7, 2) == (3, 1)


def test_what_was_told_is_not_told_again():
    metrics = Metrics(int, int, int)
    counters = metrics.counters("square", "vjp")
    assert metrics.counters("square", "vjp") is counters

    async def keep_up() -> None:
        async with metrics.kept_up():
            for _ in range(3):
                counters.answered(200, 0.0)
                counters.batched([1.0], 2.0, 3.0)
                metrics.tell()
            counters.answered(200, 0.0)

    asyncio.run(keep_up())
    text = metrics.text("")[0].decode()
    labels = '{op="square",operation="vjp"'
    assert f'pullback_requests_total{labels},status="200"}} 4.0\n' in text
    assert f"pullback_queue_seconds_total{labels}}} 3.0\n" in text
    assert f"pullback_compute_seconds_total{labels}}} 3.0\n" in text
    assert "pullback_parse_seconds_total{" not in text
