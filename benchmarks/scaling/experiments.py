"""The experiments: what the simulation is asked. Each returns rows for a table, as plain numbers."""

import math
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.scaling.arrivals import ARRIVALS, Sizes, poisson
from benchmarks.scaling.autoscaling import Autoscaler
from benchmarks.scaling.fleet import Fleet, Result
from benchmarks.scaling.pods import Costs
from benchmarks.scaling.policies import POLICIES, LeastConnections

Row = dict[str, float]

PROCESSES = 2
SEED = 1
REQUESTS = 30_000
# Enough requests for each pod: a fleet begins empty.
REQUESTS_A_POD = 1000
GOAL_S = 0.010
# The largest load of pods, as a share of the most that they can answer.
FULL = 0.95
RATES = (1e3, 1e4, 1e5, 1e6)
MOST_PODS = 1000
# Requests a second for each pod, and the autoscaler's targets.
LOADS = (1e3, 2e3, 3e3, 4e3, 6e3, 8e3, 9e3, 10e3)
# Requests take this many times as long, so that a few of them a second keep a pod busy.
SLOWER = 100
TARGETS = (1.0, 2.0, 4.0, 8.0, 16.0)
# A typical price of two cores and 4 GiB for an hour, of no particular provider.
DOLLARS = 0.08


@dataclass(frozen=True)
class Model:
    """What a request costs: measured by ``benchmarks.scaling.measure``."""

    costs: Costs
    sizes: Sizes

    def slower(self, factor: float) -> "Model":
        """Return the model of ops that take so many times as long."""
        own = self.costs
        costs = Costs(own.call_s * factor, own.outside_s * factor, own.brief_s * factor)
        return Model(costs, replace(self.sizes, least_s=self.sizes.least_s * factor, most_s=self.sizes.most_s * factor))

    @property
    def most_a_pod(self) -> float:
        """Requests a second that a pod can answer at all: those of its loop, in endless batches, and of its thread."""
        long_s = self.sizes.mean_s(self.costs.brief_s)
        on_thread = long_s + self.sizes.share(self.costs.brief_s) * self.costs.call_s
        return 1 / max(self.sizes.mean_s() - long_s, on_thread)


def fitted(loops: list[Mapping[str, float]]) -> tuple[float, float]:
    """Return the seconds of a call and of each request in it, from the medians with 1 and with 16 connections."""
    p50 = {int(loop["connections"]): loop["p50_s"] for loop in loops}
    each_s = (p50[16] - p50[1]) / 15
    return p50[1] - each_s, each_s


def replayed(measured: Mapping[str, Any]) -> tuple[Result, Mapping[str, float]]:
    """Simulate three pods with the measured arrivals; return the result, and the measured percentiles by name."""
    sleeps, latencies = (np.array(measured[name]) for name in ("sleeps_s", "latencies_s"))
    alone = np.array(measured["alone_s"]) - sleeps[: len(measured["alone_s"])]
    inside_s = float(measured["inside_s"])
    costs = Costs(inside_s, max(0.0, float(np.median(alone)) - inside_s))
    result = Fleet(LeastConnections(SEED), costs, 3).run(np.array(measured["times_s"]), sleeps, 0.0)
    return result, {name: float(np.quantile(latencies, share)) for name, share in (("p50", 0.5), ("p99", 0.99))}


def steady(model: Model, policy: str, arrivals: str, rate: float, pods: int) -> Result:
    """Simulate a constant rate."""
    rng, count = np.random.default_rng(SEED), max(REQUESTS, min(REQUESTS_A_POD * pods, 3 * REQUESTS))
    fleet = Fleet(POLICIES[policy](SEED), model.costs, pods)
    return fleet.run(ARRIVALS[arrivals](rate, count, rng), model.sizes.draw(count, rng))


def pods_needed(cell: tuple[str, str, float], model: Model) -> Row:
    """Return the fewest pods with which the 99th percentile meets the goal, and what they then do."""
    low, high = 0, 1
    while (found := _meets(model, cell, high)) is None:
        if high == MOST_PODS:
            return {"pods": math.inf}
        low, high = high, min(2 * high, MOST_PODS)
    while high - low > max(1, high // 25):
        middle = (low + high) // 2
        if (result := _meets(model, cell, middle)) is None:
            low = middle
        else:
            high, found = middle, result
    return {"pods": high, "in_flight": found.in_flight, "p99_s": found.percentile_s(0.99)}


def _meets(model: Model, cell: tuple[str, str, float], pods: int) -> Result | None:
    policy, arrivals, rate = cell
    # The simulated time is too short for an overload to fill a queue.
    if rate > FULL * model.most_a_pod * pods:
        return None
    result = steady(model, policy, arrivals, rate, pods)
    return result if result.percentile_s(0.99) <= GOAL_S else None


def all_pods_needed(model: Model) -> dict[tuple[str, str, float], Row]:
    """Return ``pods_needed`` for each policy, kind of arrivals and rate."""
    cells = [(policy, arrivals, rate) for policy in POLICIES for arrivals in ARRIVALS for rate in RATES]
    with ProcessPoolExecutor(PROCESSES) as pool:
        return dict(zip(cells, pool.map(partial(pods_needed, model=model), cells), strict=True))


def load_curve(policy: str, model: Model, pods: int = 30) -> list[Row]:
    """Return the 99th percentile over the requests in flight for each pod, from little load to nearly too much."""
    rows = list[Row]()
    for rate in LOADS:
        result = steady(model, policy, "Poisson", rate * pods, pods)
        rows.append({"rate": rate, "in_flight": result.in_flight, "p99_s": result.percentile_s(0.99)})
    return rows


def load_curves(model: Model) -> dict[str, list[Row]]:
    """Return ``load_curve`` of each policy."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        return dict(zip(POLICIES, pool.map(partial(load_curve, model=model), POLICIES), strict=True))


def steps(model: Model) -> list[Row]:
    """Return ``step`` for each target."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        return [*pool.map(partial(step, model=model), TARGETS)]


def step(target: float, model: Model, start_s: float = 20.0) -> Row:
    """Return what a step to three times the load does with an autoscaler that aims at ``target`` requests in flight."""
    rng, slow = np.random.default_rng(SEED), model.slower(SLOWER)
    before_s, after_s, rate = 240.0, 360.0, 250.0
    first = poisson(rate, int(rate * before_s), rng)
    times = np.concatenate([first, first[-1] + poisson(3 * rate, int(3 * rate * after_s), rng)])
    fleet = Fleet(LeastConnections(SEED), slow.costs, 3, most_waiting=128)
    Autoscaler(fleet, target, start_s, float(times[-1])).start()
    result = fleet.run(times, slow.sizes.draw(len(times), rng))
    settled = (result.arrived_s > before_s - 60) & (result.arrived_s < first[-1])
    stepped = result.arrived_s > first[-1]
    late = result.latencies_s[stepped] > SLOWER * GOAL_S
    return {
        "target": target,
        "p99 before": float(np.quantile(result.latencies_s[settled], 0.99)) / SLOWER,
        "late": float(late.mean()),
        "refused": result.refused / len(times),
        "pods": len(fleet.pods),
    }


def death(resends: bool, model: Model, pods: int = 10, rate_a_pod: float = 3000.0) -> Row:
    """Return what becomes of the requests when one of the pods dies, which the balancer notices after 1.25 s."""
    rng, count = np.random.default_rng(SEED), int(4 * rate_a_pod * pods)
    fleet = Fleet(LeastConnections(SEED), model.costs, pods)
    fleet.resends = resends
    fleet.env.timeout(2.0).callbacks.append(lambda _: fleet.kill(0, 1.25))
    result = fleet.run(poisson(rate_a_pod * pods, count, rng), model.sizes.draw(count, rng), 0.0)
    during = (result.arrived_s > 1.9) & (result.arrived_s < 3.25)  # noqa: PLR2004 - seconds around the death
    return {"lost": result.lost, "p99 s": float(np.quantile(result.latencies_s[during], 0.99))}
