"""The page: the comparison, the targets, Pullback by itself, and the environment of the run."""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks.alone import Alone
from benchmarks.candidates import CANDIDATES, Candidate
from benchmarks.cells import Cell, Found, figure
from benchmarks.load import wrk_version
from benchmarks.processes import versions
from benchmarks.targets import judged

PEERS = {
    "umbridge_numpy": ("umbridge", "aiohttp", "numpy"),
    "umbridge_tensorflow": ("umbridge", "tensorflow-cpu"),
    "tesseract": ("tesseract-core", "fastapi", "uvicorn", "numpy"),
    "triton": ("nvidia-pytriton", "numpy"),
    "mlserver": ("mlserver", "fastapi", "uvicorn", "numpy"),
}
OURS = ("tensorflow_cpu", "uvicorn", "httptools", "uvloop", "numpy")

HEAD = """\
# Serving, side by side

`python -m benchmarks.serving` writes this page. Each request is one VJP of y = log1p(eˣ) at n float32 numbers, with the
cotangent, over c connections. Figures are requests per second: the median of the rounds (minimum–maximum). They depend
on the machine; compare the ratios within this run.
"""
FOOT = """\
"–": not measured, because it would show nothing new: without HTTP there are no connections, and UM-Bridge computes
large requests one after the other. The echo returns half of the bytes that it receives, because a gradient is half the
size of its inputs."""


class Run(NamedTuple):
    """A run: the candidates, their outcomes, the reasons for missing servers, and the kind of run."""

    names: Sequence[str]
    found: Found
    absent: Mapping[str, str]
    alone: Alone | None
    kind: str


def markdown(run: Run) -> str:
    """Return the page."""
    parts = [HEAD]
    if run.found:
        parts += ["![Requests per second](serving.png)\n", beside(run), "", FOOT, ""]
    rows = (one.row() for one in judged(run.found, run.alone))
    parts += ["## Targets\n", table(("figure", "measured", "target", ""), rows), ""]
    if run.alone:
        parts += ["## Pullback by itself\n", by_itself(run.alone), ""]
    parts += ["## Environment\n", where(run)]
    return "\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def beside(run: Run) -> str:
    """Return one line per candidate."""
    rows = [[_title(CANDIDATES[name]), *(_text(run, cell, name) for cell in run.found)] for name in run.names]
    return table(["", *(cell.title for cell in run.found)], rows)


def _title(candidate: Candidate) -> str:
    return f"**{candidate.title}**" if candidate.side == "ours" else candidate.title


def _text(run: Run, cell: Cell, name: str) -> str:
    if CANDIDATES[name].server in run.absent:
        return "left out"
    return run.found[cell][name].text() if name in run.found[cell] else "–"


def by_itself(alone: Alone) -> str:
    """Return the results of Pullback by itself, as sentences and a table."""
    lines: list[str] = []
    if shapes := alone.shapes:
        lines.append(
            f"- {shapes.requests:,} requests of {shapes.shapes:,} random shapes, new to the process, increased its "
            f"memory by {shapes.grown_mb:.0f} MB ({shapes.rss_mb:.0f} MB in total); traces went from "
            f"{shapes.traces[0]} to {shapes.traces[1]}, compiled traces from "
            f"{shapes.compiled[0]} to {shapes.compiled[1]}."
        )
    lines += [
        f"- `/health/live` under {h.load}: {1e3 * h.p99:.1f} ms at the 99th percentile of {h.probes} probes, "
        f"{1e3 * h.longest:.1f} ms at most."
        for h in alone.health
    ]
    lines += [f"- Not measured: {what}." for what in alone.nots]
    if alone.costs:
        rows = [
            (f"{n:,}", f"{figure(1e9 * cost)} ns", f"{figure(1e3 * n * cost)} ms") for n, cost in alone.costs.items()
        ]
        lines += ["", "Safetensors, one request at a time:", "", table(("n", "per number", "per request"), rows)]
    return "\n".join(lines)


def where(run: Run) -> str:
    """Return the machine, the versions, and the missing servers with the reasons."""
    servers = dict.fromkeys(CANDIDATES[name].server for name in run.names)
    own = ", ".join(f"{package.replace('_', '-')} {version(package)}" for package in OURS)
    lines = [
        f"- {run.kind}; {machine()}; Linux, Python {platform.python_version()}.",
        f"- Pullback and the echo: {own}.",
        *(f"- {server}: {versions(server, *PEERS[server])}." for server in servers if server in PEERS),
        *(f"- {server} is missing: {why}." for server, why in run.absent.items()),
        f"- Load: {wrk_version()}, one thread; at n = 1,000,000 `benchmarks/sockets.py`.",
    ]
    return "\n".join(lines)


def machine() -> str:
    """Return the cores, the processor and the memory."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{len(os.sched_getaffinity(0))} cores, {model or platform.machine()}, {memory:.0f} GB"
