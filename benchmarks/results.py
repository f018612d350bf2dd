"""The page: the comparison, the targets, Pullback by itself, and the environment of the run."""

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks import clients
from benchmarks.alone import Alone
from benchmarks.candidates import CANDIDATES
from benchmarks.cells import LARGE, Cell, Outcome, duration, figure
from benchmarks.commit import described
from benchmarks.fast_path import Express, Pair
from benchmarks.pages import table
from benchmarks.processes import versions
from benchmarks.run import Run
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
cotangent, over c connections. A load repeats up to 1,000 requests with different numbers, whose texts have different
lengths. CPU is the time of all threads and child processes of the server. Figures are the median of the rounds
(minimum–maximum). Rates depend on the machine and on what else it does, CPU less so; compare the ratios within this
run.
"""
FOOT = """\
"–": not measured, because it would show nothing new: without HTTP there are no connections, and UM-Bridge computes
large requests one after the other. The echoes return half of the bytes that they receive, because a gradient is half
the size of its inputs."""
TARGETS = """\
A ratio is the median of the rounds' ratios. "Requests per second of CPU" is the other server's CPU per request divided
by Pullback's.
"""
SUMMARY = {
    Cell(10, 1): "pullback-json",
    Cell(10, 16): "pullback-json",
    Cell(10, 64): "pullback-json",
    Cell(1000, 16): "pullback-safetensors",
    Cell(LARGE, 1): "pullback-safetensors",
    Cell(LARGE, 4): "pullback-safetensors",
}
"""The cells of the table of docs/performance.md, with the format of Pullback in each."""
SUMMARIZED = {
    "TensorFlow in UM-Bridge": "umbridge-tf",
    "NumPy in UM-Bridge": "umbridge",
    "NumPy in Triton": "triton",
    "NumPy in Tesseract": "tesseract",
}


def markdown(run: Run) -> str:
    """Return the page."""
    parts = [HEAD]
    if run.found:
        parts += ["![Requests per second, and CPU per request](serving.png)\n"]
        parts += ["## Requests per second\n", beside(run, lambda outcome: outcome.rates), ""]
        parts += ["## CPU microseconds per request\n", beside(run, lambda outcome: outcome.cpu_us), "", FOOT, ""]
    rows = (one.row() for one in judged(run))
    parts += ["## Targets\n", TARGETS, table(("figure", "measured", "target", ""), rows), ""]
    if run.express:
        parts += ["## The fast path\n", by_express(run.express), ""]
    if run.clients:
        parts += ["## Stock clients\n", clients.markdown(run.clients), ""]
    if run.alone:
        parts += ["## Pullback by itself\n", by_itself(run.alone), ""]
    parts += ["## Environment\n", where(run)]
    return "\n".join(parts) + "\n"


def beside(run: Run, rounds_of: Callable[[Outcome], Sequence[float]]) -> str:
    """Return one line per candidate, with one kind of figure."""
    head = ["", *(cell.title for cell in run.found)]
    return table(
        head, [[_title(name), *(_text(run, cell, name, rounds_of) for cell in run.found)] for name in run.names]
    )


def _title(name: str) -> str:
    candidate = CANDIDATES[name]
    return f"**{candidate.title}**" if candidate.side == "ours" else candidate.title


def _text(run: Run, cell: Cell, name: str, rounds_of: Callable[[Outcome], Sequence[float]]) -> str:
    if CANDIDATES[name].server in run.absent:
        return "left out"
    outcome = run.found[cell].get(name)
    return outcome.text(rounds_of(outcome)) if outcome else "–"


def summary(run: Run) -> str:
    """Return a table of docs/performance.md: the medians of requests per second and of CPU microseconds per request."""
    rows = list[list[str]]()
    for cell, ours in SUMMARY.items():
        outcomes = [run.found[cell].get(name) for name in (ours, *SUMMARIZED.values())]
        rows.append([f"{cell.n:,}", str(cell.connections), *map(_both, outcomes)])
    head = ("numbers", "connections", "Pullback", *SUMMARIZED)
    what = f"Gradients per second, and in brackets the server's CPU time per gradient, at commit {described()}:"
    return f"{what}\n\n{table(head, rows)}"


def _both(outcome: Outcome | None) -> str:
    if outcome is None or not outcome.rates:
        return "–"
    return f"{figure(statistics.median(outcome.rates))} ({duration(statistics.median(outcome.cpu_us))})"


def by_express(express: Express) -> str:
    """Return the results of the fast path, as a sentence and a table."""
    lines = [f"- Not measured: {what}." for what in express.nots]
    if express.calls is not None:
        lines.append(f"- A repeated request calls {express.calls:.1f} Python functions, at c = 16.")
    rows = [
        (pair.load.title, *(duration(statistics.median(us)) for us in (pair.on, pair.off)), _spread(pair))
        for pair in express.pairs
    ]
    head = ("requests, c = 16", "CPU per request with the fast path", "without it", "with / without")
    return "\n".join([*lines, "", table(head, rows)])


def _spread(pair: Pair) -> str:
    ratios = [on / off for on, off in zip(pair.on, pair.off, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


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
    lines = [
        f"- Commit {described()}.",
        f"- {run.kind}; {machine()}; Linux, Python {platform.python_version()}.",
        f"- Pullback and the echoes: {own_versions()}.",
        *(f"- {server}: {versions(server, *PEERS[server])}." for server in servers if server in PEERS),
        *(f"- {server} is missing: {why}." for server, why in run.absent.items()),
        "- Load: `benchmarks/load.cc`, one thread.",
    ]
    return "\n".join(lines)


def own_versions() -> str:
    """Return the versions of the packages that Pullback is built on."""
    return ", ".join(f"{package.replace('_', '-')} {version(package)}" for package in OURS)


def machine() -> str:
    """Return the cores, the processor and the memory."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{len(os.sched_getaffinity(0))} cores, {model or platform.machine()}, {memory:.0f} GB"
