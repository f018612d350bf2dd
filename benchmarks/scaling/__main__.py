"""Simulate fleets, and write the tables and the plot of a page: ``python -m benchmarks.scaling MEASURED PAGE``.

MEASURED is the file that ``benchmarks.scaling.measure`` writes. The plot is next to the page.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks.pages import replace, table
from benchmarks.scaling import experiments
from benchmarks.scaling.arrivals import ARRIVALS, Sizes
from benchmarks.scaling.experiments import GOAL_S, RATES, Model, Row
from benchmarks.scaling.pods import Costs
from benchmarks.scaling.policies import POLICIES

# What HAProxy and the network add.
OUTSIDE_S = 3e-4
PLOT = "scaling.svg"
# The requests in flight for each pod to aim at, and the fewest pods of a fleet.
AIM, LEAST_PODS = 2.0, 3


def ms(seconds: float) -> str:
    """Return milliseconds with three digits."""
    return f"{1e3 * seconds:.3g} ms"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.2g} %"


def calibration(measured: Mapping[str, Any]) -> str:
    """Return the table that compares three pods with their simulation."""
    result, found = experiments.replayed(measured)
    simulated = {"p50": result.percentile_s(0.5), "p99": result.percentile_s(0.99)}
    rows = [
        [name, ms(found[name]), ms(simulated[name]), f"{100 * (simulated[name] / found[name] - 1):+.0f} %"]
        for name in found
    ]
    return table(["three pods", "measured", "simulated", "difference"], rows)


def needed(cells: Mapping[tuple[str, str, float], Row]) -> str:
    """Return the table of the fewest pods by rate, arrivals and policy."""
    heads = ["requests a second", "arrivals", *POLICIES, "in flight a pod", "99th percentile"]
    rows = list[list[str]]()
    for rate in RATES:
        for arrivals in ARRIVALS:
            best = cells["leastconn", arrivals, rate]
            pods = [cells[policy, arrivals, rate]["pods"] for policy in POLICIES]
            shown = [f"{count:.0f}" if math.isfinite(count) else "over 1,000" for count in pods]
            rows.append([f"{rate:,.0f}", arrivals, *shown, f"{best['in_flight']:.1f}", ms(best["p99_s"])])
    return table(heads, rows)


def by_the_rule(rows: Sequence[Row]) -> str:
    """Return the table of pods and costs with as many requests in flight as the rule says, from the load curve."""
    rates, in_flight = ([row[name] for row in rows] for name in ("rate", "in_flight"))
    a_pod = float(np.interp(AIM, in_flight, rates))
    slowest = float(np.interp(AIM, in_flight, [row["p99_s"] for row in rows]))
    cells = list[list[str]]()
    for rate in RATES:
        pods = max(LEAST_PODS, math.ceil(rate / a_pod))
        cells.append([f"{rate:,.0f}", f"{pods:,}", f"{pods * experiments.DOLLARS:,.2f}", f"at most {ms(slowest)}"])
    return table(["requests a second", "pods", "dollars an hour", "99th percentile"], cells)


def curve(rows: Sequence[Row]) -> str:
    """Return the table of what a load does."""
    heads = ["requests a second for each pod", "in flight for each pod", "99th percentile"]
    return table(heads, [[f"{r['rate']:,.0f}", f"{r['in_flight']:.2g}", ms(r["p99_s"])] for r in rows])


def targets(rows: Sequence[Row]) -> str:
    """Return the table of the autoscaler's targets."""
    heads = ["target", "99th percentile before", "late after the step", "refused", "pods at the end"]
    cells = [
        [f"{r['target']:.0f}", ms(r["p99 before"]), percent(r["late"]), percent(r["refused"]), f"{r['pods']:.0f}"]
        for r in rows
    ]
    return table(heads, cells)


def deaths(model: Model) -> str:
    """Return the table of what is lost when a pod dies."""
    found = {"sent again": experiments.death(True, model), "not sent again": experiments.death(False, model)}
    return table(
        ["requests of a pod that died", "lost", "99th percentile meanwhile"],
        [[name, f"{row['lost']:,.0f}", ms(row["p99 s"])] for name, row in found.items()],
    )


def plot(curves: Mapping[str, Sequence[Row]], cells: Mapping[tuple[str, str, float], Row], path: Path) -> None:
    """Draw latency over requests in flight, and pods over the rate."""
    with rc_context({"svg.hashsalt": "scaling", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for policy, rows in curves.items():
            left.plot([r["in_flight"] for r in rows], [1e3 * r["p99_s"] for r in rows], ".-", label=policy)
        left.set(xscale="log", yscale="log", xlabel="requests in flight for each pod", ylabel="99th percentile, ms")
        left.set_title("30 pods, Poisson arrivals")
        for policy in POLICIES:
            pods = [cells[policy, "bursts of 64", rate]["pods"] for rate in RATES]
            right.plot(RATES, pods, ".-", label=policy)
        right.set(
            xscale="log",
            yscale="log",
            xlabel="requests a second",
            ylabel=f"pods for {ms(GOAL_S)} at the 99th percentile",
        )
        right.set_title("bursts of 64")
        left.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


def main(measured_file: str, page_file: str) -> None:
    """Simulate, and write the page."""
    page, measured = Path(page_file), json.loads(Path(measured_file).read_text())
    call_s, each_s = experiments.fitted(measured["loops"])
    model = Model(Costs(call_s, OUTSIDE_S), Sizes(least_s=each_s))
    curves, cells = experiments.load_curves(model), experiments.all_pods_needed(model)
    plot(curves, cells, page.with_name(PLOT))
    costs = f"a call takes {1e6 * call_s:.0f} µs, and each request in it {1e6 * each_s:.0f} µs"
    parts = {
        "costs": f"Measured on one process: {costs}.",
        "calibration": calibration(measured),
        "load": curve(curves["leastconn"]),
        "rule": by_the_rule(curves["leastconn"]),
        "pods": needed(cells),
        "targets": targets(experiments.steps(model)),
        "deaths": deaths(model),
    }
    for name, part in parts.items():
        replace(page, name, part)


if __name__ == "__main__":
    main(*sys.argv[1:])
