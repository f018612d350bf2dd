"""Draw the panels of the dashboard: ``python -m benchmarks.scaling.draw PANELS PICTURE``.

PANELS is the file that ``benchmarks.scaling.observe`` writes. The picture has the panels of the dashboard, with the
results of their queries; Grafana draws them with more care.
"""

import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

COLUMNS, HEIGHT_IN, WIDTH_IN = 3, 2.2, 13.0
LABEL = re.compile(r"{{(\w+)}}")
MOST_LEGENDS = 6
UNITS = {
    "s": lambda value, _: f"{1e3 * value:g} ms" if value < 1 else f"{value:g} s",
    "bytes": lambda value, _: f"{value / 2**20:.0f} MiB",
    "percentunit": lambda value, _: f"{100 * value:g} %",
    "reqps": lambda value, _: f"{value:g}/s",
    "short": lambda value, _: f"{value:g}",
}
STYLE = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}


def legend_of(series: Mapping[str, Any]) -> str:
    """Return the legend of a series, with its labels in place of their names."""
    return LABEL.sub(lambda found: series["metric"].get(found[1], ""), series["legend"]) or "(none)"


def draw(axis: Axes, panel: Mapping[str, Any]) -> None:
    """Draw a panel."""
    axis.set_title(panel["title"], loc="left", fontweight="bold", fontsize=9)
    begin = min((float(s["values"][0][0]) for s in panel["series"]), default=0.0)
    for series in panel["series"]:
        seconds = [float(time) - begin for time, _ in series["values"]]
        values = [float(value) for _, value in series["values"]]
        axis.plot(
            seconds, [math.nan if math.isinf(value) else value for value in values], label=legend_of(series), lw=1.2
        )
    if panel["series"]:
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_formatter(FuncFormatter(UNITS[panel["unit"]]))
        axis.legend(*(part[:MOST_LEGENDS] for part in axis.get_legend_handles_labels()), frameon=False, fontsize=7)
    else:
        axis.text(0.5, 0.5, "no data", ha="center", va="center", transform=axis.transAxes, color="#94a3b8")
        axis.set(xticks=[], yticks=[])


def main(panels_file: str, picture: str) -> None:
    """Draw all panels into one picture."""
    panels = [panel for panel in json.loads(Path(panels_file).read_text()) if panel["type"] != "row"]
    rows = -(-len(panels) // COLUMNS)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN * rows), layout="constrained")
        axes = figure.subplots(rows, COLUMNS)
        for axis in axes.flat[len(panels) :]:
            axis.remove()
        for axis, panel in zip(axes.flat, panels, strict=False):
            draw(axis, panel)
        figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:])
