"""The tallies: what is added to what, and that nothing is lost on the way to Prometheus."""

import asyncio

import pytest
from prometheus_client import Histogram

from app.batches import Batches
from app.execution import Lane
from app.lifecycle import Lifecycle
from app.metrics import Metrics
from app.tally import UNCOUNTED, Counted


@pytest.fixture
def tally() -> Counted:
    def histogram() -> Histogram:
        return Histogram("a_histogram", "Anything.", registry=None)

    return Counted(histogram, histogram)


def test_each_call_of_a_batch_has_waited_and_all_were_computed_once(tally: Counted):
    tally.batched([1.0, 2.0, 2.5], 3.0, 7.0)
    assert tally.seconds == {"parse": 0, "queue": 3.5, "compute": 4.0, "serialise": 0}


def test_work_that_fails_has_taken_its_time(tally: Counted):
    def fails() -> None:
        raise ValueError("no such luck")

    with pytest.raises(ValueError, match="no such luck"):
        tally.timed("parse", fails)
    with pytest.raises(ValueError, match="no such luck"):
        tally.queued(fails)()
    assert all(tally.seconds[stage] > 0 for stage in ("parse", "queue", "compute"))


def test_arguments_and_results_pass_through(tally: Counted):
    for one in (tally, UNCOUNTED):
        assert one.timed("parse", divmod, 7, 2) == (3, 1)
        assert one.queued(divmod)(7, 2) == (3, 1)


def test_what_was_told_is_not_told_again():
    lane = Lane(1)
    metrics = Metrics(lane, Batches(lane, 1), Lifecycle())
    tally = metrics.tally("square", "vjp")
    assert metrics.tally("square", "vjp") is tally

    async def keep_up() -> None:
        async with metrics.kept_up():
            for _ in range(3):
                tally.answered(200, 0.0)
                tally.batched([1.0], 2.0, 3.0)
                metrics.tell()
            tally.answered(200, 0.0)

    asyncio.run(keep_up())
    text = metrics.text("")[0].decode()
    labels = '{op="square",operation="vjp"'
    assert f'pullback_requests_total{labels},status="200"}} 4.0\n' in text
    assert f"pullback_queue_seconds_total{labels}}} 3.0\n" in text
    assert f"pullback_compute_seconds_total{labels}}} 3.0\n" in text
    assert "pullback_parse_seconds_total{" not in text
