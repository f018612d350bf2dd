"""The plot: a panel per cell, a dot per candidate. On its logarithmic scale the lengths of bars would mean nothing."""

import statistics
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.candidates import CANDIDATES
from benchmarks.cells import Found, Outcomes, duration, figure

COLOURS = {"ours": "#c2410c", "peer": "#64748b", "limit": "#a3b8cc"}
COLUMNS = 2


def plot(found: Found, path: Path) -> None:
    """Draw the results into a file."""
    mpl.use("Agg")
    rows = -(-len(found) // COLUMNS)
    names = [name for name in CANDIDATES if any(name in outcomes for outcomes in found.values())]
    figure_, axes = plt.subplots(
        rows, COLUMNS, figsize=(11, rows * (0.9 + 0.27 * len(names))), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, (cell, outcomes) in zip(axes.flat, found.items(), strict=False):
        panel(axis, names, outcomes)
        axis.set_title(cell.title, loc="left", fontsize=11, fontweight="bold")
    figure_.suptitle(
        "Gradients a second, and the server's CPU per gradient: medians, and lines from the least rate to the greatest"
    )
    figure_.savefig(path, dpi=100)
    plt.close(figure_)


def panel(axis: Axes, names: list[str], outcomes: Outcomes) -> None:
    """Draw a cell."""
    greatest = max((max(outcome.rates) for outcome in outcomes.values() if outcome.rates), default=1.0)
    least = min((min(outcome.rates) for outcome in outcomes.values() if outcome.rates), default=0.1)
    axis.set_xscale("log")
    axis.set_xlim(least / 2, greatest * 8)
    for place, name in enumerate(names):
        outcome = outcomes.get(name)
        if outcome is None or not outcome.rates:
            why = outcome.why if outcome else "–"
            axis.text(least / 1.9, place, why, va="center", fontsize=8, color="#94a3b8", style="italic")
            continue
        rates, middle = outcome.rates, statistics.median(outcome.rates)
        colour = COLOURS[CANDIDATES[name].side]
        axis.plot([min(rates), max(rates)], [place, place], color=colour, linewidth=2.2)
        axis.plot([middle], [place], "o", color=colour, markersize=8)
        text = f"{figure(middle)}  ({duration(statistics.median(outcome.cpu_us))})"
        axis.annotate(text, (max(rates), place), (8, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_yticks(range(len(names)), [CANDIDATES[name].title for name in names], fontsize=9)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_locator(LogLocator(10, (1, 3)))
    axis.xaxis.set_major_formatter(FuncFormatter(tick))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(color="#e2e8f0", linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def tick(value: float, place: int | None = None) -> str:
    """Return the number at a tick."""
    del place
    return figure(value)
