"""The simulation agrees with what queueing theory knows. Seeds are fixed, so every run has the same figures."""

import math

import numpy as np
import pytest

from benchmarks.scaling.arrivals import Sizes, bursts, poisson
from benchmarks.scaling.autoscaling import Autoscaler
from benchmarks.scaling.experiments import Model, death
from benchmarks.scaling.fleet import Fleet
from benchmarks.scaling.pods import BRIEF_S, Costs
from benchmarks.scaling.policies import POLICIES, LeastConnections, Random

FREE = Costs()
COUNT = 60_000
# What a mean of so many requests in a queue may differ from its expectation.
NOISE = 0.05
MEAN_S = 1.0


def long_costs(count: int, seed: int = 2) -> np.ndarray:
    """Return exponential costs whose mean is a second: all run on the thread."""
    return np.maximum(np.random.default_rng(seed).exponential(MEAN_S, count), BRIEF_S)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_pod_with_long_requests_is_an_m_m_1_queue(load):
    times = poisson(load / MEAN_S, COUNT, np.random.default_rng(1))
    result = Fleet(Random(1), FREE, 1).run(times, long_costs(COUNT))
    assert result.latencies_s.mean() == pytest.approx(MEAN_S / (1 - load), rel=NOISE)
    assert result.percentile_s(0.99) == pytest.approx(-math.log(0.01) * MEAN_S / (1 - load), rel=2 * NOISE)
    assert result.in_flight == pytest.approx(load / (1 - load), rel=2 * NOISE)
    assert result.busy == pytest.approx(load, rel=NOISE)


def test_random_choice_makes_each_pod_a_queue_of_its_own():
    times = poisson(5 * 0.6 / MEAN_S, COUNT, np.random.default_rng(1))
    result = Fleet(Random(1), FREE, 5).run(times, long_costs(COUNT))
    assert result.latencies_s.mean() == pytest.approx(MEAN_S / 0.4, rel=NOISE)


def test_equal_requests_at_equal_distances_never_wait():
    """A D/D/1 queue below its capacity."""
    result = Fleet(LeastConnections(1), FREE, 1).run(np.arange(1, 1000) * 1.0, np.full(999, 0.9))
    assert result.latencies_s == pytest.approx(0.9)


def test_brief_requests_share_a_call():
    """Ten that arrive at once wait for one call that the first has begun, and then share the second."""
    times, costs = np.zeros(11), np.full(11, 1e-4)
    result = Fleet(LeastConnections(1), Costs(call_s=1e-3), 1).run(times, costs, 0.0)
    assert sorted(result.latencies_s) == pytest.approx([1.1e-3] + [1.1e-3 + 2e-3] * 10)


def test_better_policies_have_shorter_queues():
    """Random, in turn, the better of two, the best of all: with exponential costs, this order is a theorem."""
    times = poisson(10 * 0.9 / MEAN_S, COUNT, np.random.default_rng(1))
    means = [
        Fleet(policy(1), FREE, 10).run(times, long_costs(COUNT)).latencies_s.mean() for policy in POLICIES.values()
    ]
    assert means == sorted(means, reverse=True)
    assert means[0] > 2 * means[-1]


@pytest.mark.parametrize("sizes", [Sizes(), Sizes(1e-3, 1.0, 1.5)])
def test_sizes_have_their_bounds_and_mean(sizes):
    found = sizes.draw(400_000, np.random.default_rng(1))
    assert sizes.least_s <= found.min()
    assert found.max() <= sizes.most_s
    assert found.mean() == pytest.approx(sizes.mean_s(), rel=0.02)
    assert np.where(found > BRIEF_S, found, 0.0).mean() == pytest.approx(sizes.mean_s(BRIEF_S), rel=0.05)
    assert (found > BRIEF_S).mean() == pytest.approx(sizes.share(BRIEF_S), rel=0.05)


@pytest.mark.parametrize("arrive", [poisson, bursts])
def test_arrivals_have_their_rate(arrive):
    times = arrive(1000.0, COUNT, np.random.default_rng(1))
    assert len(times) == COUNT
    assert (np.diff(times) >= 0).all()
    assert COUNT / times[-1] == pytest.approx(1000.0, rel=0.05)


def test_a_dead_pod_loses_nothing_that_is_sent_again():
    model = Model(Costs(1e-4, 3e-4), Sizes())
    assert death(True, model)["lost"] == 0
    assert death(False, model)["lost"] > 0


def test_more_requests_than_may_wait_are_refused():
    result = Fleet(LeastConnections(1), FREE, 2, most_waiting=3).run(np.zeros(10), np.full(10, 1.0), 0.0)
    assert (len(result.latencies_s), result.refused) == (6, 4)


def test_the_autoscaler_reaches_its_target():
    rate, target = 20.0, 2.0
    times = poisson(rate / MEAN_S, 20_000, np.random.default_rng(1))
    fleet = Fleet(LeastConnections(1), FREE, 15)
    Autoscaler(fleet, target, 20.0, float(times[-1])).start()
    result = fleet.run(times, long_costs(len(times)), 0.5)
    assert len(fleet.pods) > rate
    assert result.in_flight <= target
    assert result.refused == result.lost == 0
