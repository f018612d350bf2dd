"""The plot: a panel a cell, a bar a candidate, on one scale in each panel that begins at 0 or is logarithmic."""

import statistics
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.candidates import CANDIDATES
from benchmarks.cells import Found, Outcomes, figure

COLOURS = {"ours": "#c2410c", "peer": "#64748b", "limit": "#cbd5e1"}
COLUMNS = 2


def plot(found: Found, path: Path) -> None:
    """Draw what was found into a file."""
    mpl.use("Agg")
    rows = -(-len(found) // COLUMNS)
    names = [name for name in CANDIDATES if any(name in outcomes for outcomes in found.values())]
    figure_, axes = plt.subplots(
        rows, COLUMNS, figsize=(11, rows * (0.9 + 0.27 * len(names))), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, (cell, outcomes) in zip(axes.flat, found.items(), strict=False):
        panel(axis, names, outcomes)
        axis.set_title(cell.title, loc="left", fontsize=11, fontweight="bold")
    figure_.suptitle("Gradients a second (logarithmic; median, and a line from the least to the greatest round)")
    figure_.savefig(path, dpi=100)
    plt.close(figure_)


def panel(axis: Axes, names: list[str], outcomes: Outcomes) -> None:
    """Draw a cell."""
    greatest = max((max(outcome.rates) for outcome in outcomes.values() if outcome.rates), default=1.0)
    least = min((min(outcome.rates) for outcome in outcomes.values() if outcome.rates), default=0.1)
    axis.set_xscale("log")
    axis.set_xlim(least / 3, greatest * 4)
    for place, name in enumerate(names):
        outcome = outcomes.get(name)
        if outcome is None or not outcome.rates:
            why = outcome.why if outcome else "–"
            axis.text(least / 2.6, place, why, va="center", fontsize=8, color="#94a3b8", style="italic")
            continue
        rates, middle = outcome.rates, statistics.median(outcome.rates)
        axis.barh(place, middle, color=COLOURS[CANDIDATES[name].side], height=0.72)
        axis.plot([min(rates), max(rates)], [place, place], color="#0f172a", linewidth=1.4)
        axis.text(max(rates) * 1.12, place, figure(middle), va="center", fontsize=8)
    axis.set_yticks(range(len(names)), [CANDIDATES[name].title for name in names], fontsize=9)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color="#e2e8f0", linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
