"""The counters: what each event adds to, and that no count is lost on the way to Prometheus."""

import asyncio

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
