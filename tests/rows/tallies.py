"""What an attack has found, by op: counted, printed as progress and as a table, and kept in files."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tests.conftest import ROOT
from tests.rows.cases import Case

FOLDER = ROOT / "build" / "rows"
PROGRESS_S = 10.0
# So many differences of each op are asked again alone, and so many are kept.
AGAIN, KEPT = 5, 40
HEADS = ("op", "rows", "requests", "errors", "a call", "differences", "alone", "far")


@dataclass
class Tally:
    """What was found for an op: requests, how many were answered with an error, and the requests that differ."""

    requests: int = 0
    errors: int = 0
    differences: list[tuple[Case, tuple[int, bytes]]] = field(default_factory=list[tuple[Case, tuple[int, bytes]]])
    also_alone: int = 0
    far: int = 0
    """Requests whose expected answer is not near that of the op without its declaration."""
    calls: tuple[float, float] = (0.0, 0.0)
    """How many requests were in TensorFlow calls that count them, and the calls."""


class Tallies:
    """The tallies by op, and the progress on the console."""

    def __init__(self, console: Console, wanted: int) -> None:
        """Expect ``wanted`` requests in all."""
        self.of: dict[str, Tally] = {}
        self._console, self._wanted = console, wanted
        self._began = self._shown = time.monotonic()
        self.requests = self.differences = 0

    def add(self, case: Case, is_right: bool, found: tuple[int, bytes]) -> None:
        """Count an answer."""
        tally = self.of.setdefault(case.kind.op.name, Tally())
        tally.requests += 1
        tally.errors += found[0] >= 400
        self.requests += 1
        if not is_right:
            tally.differences.append((case, found))
            self.differences += 1

    def progress(self) -> None:
        """Print how far it is, every few seconds."""
        now = time.monotonic()
        if now - self._shown >= PROGRESS_S:
            self._shown, rate = now, self.requests / (now - self._began)
            share = f"{self.requests} of {self._wanted} requests, {rate:.0f} a second"
            self._console.print(f"  {share}, {self.differences} differences", highlight=False)


def count_calls(url: str, tallies: Tallies) -> None:
    """Read from the metrics of a service how many requests of each op were in calls that several may share."""
    counts: dict[str, Counter[str]] = {}
    text = httpx.get(f"{url}/metrics", trust_env=False).raise_for_status().text
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == "pullback_batch_size" else ():
            counts.setdefault(sample.labels["op"], Counter())[sample.name.rpartition("_")[2]] += int(sample.value)
    for name, tally in tallies.of.items():
        tally.calls = (counts[name]["sum"], counts[name]["count"]) if name in counts else (0, 0)


def report(console: Console, tallies: Tallies, folders: Mapping[str, str]) -> None:
    """Print the table, and keep the first differences."""
    table = Table(title="Answers under load", title_justify="left", caption_justify="left", show_footer=True)
    table.box = SIMPLE
    table.caption = (
        "errors: answers with an error status, of wrong requests and of rows that an op refuses. a call: requests in "
        f"a TensorFlow call. alone: of up to {AGAIN} requests that differ, those that differ at c = 1 too. far: "
        "answers that differ by more than rounding from those of the op without its declaration."
    )
    errors = sum(tally.errors for tally in tallies.of.values())
    far = sum(tally.far for tally in tallies.of.values())
    feet = ("all", "", str(tallies.requests), str(errors), "", str(tallies.differences - far), "", str(far))
    for head, foot in zip(
        ("op", "rows", "requests", "errors", "a call", "differences", "alone", "far"), feet, strict=True
    ):
        table.add_column(head, footer=foot, justify="left" if head in ("op", "rows") else "right", no_wrap=True)
    for name, tally in sorted(tallies.of.items(), key=lambda item: (-len(item[1].differences), -item[1].far, item[0])):
        requests, calls = tally.calls
        wrong = len(tally.differences)
        marked = f"[red]{wrong}[/]" if wrong else "0"
        a_call = f"{requests / calls:.1f}" if calls else "-"
        counts = (
            str(tally.requests),
            str(tally.errors),
            a_call,
            marked,
            str(tally.also_alone) if wrong else "",
            str(tally.far),
        )
        table.add_row(name, folders.get(name, "registered"), *counts)
    console.print(table)
    kept = [(case, found) for tally in tallies.of.values() for case, found in tally.differences[:AGAIN]][:KEPT]
    for number, (case, found) in enumerate(kept):
        (FOLDER / f"{number:02}.request").write_bytes(case.request)
        (FOLDER / f"{number:02}.expected").write_bytes(b"%d %b" % case.expected)
        (FOLDER / f"{number:02}.got").write_bytes(b"%d %b" % found)
    if kept:
        console.print(f"{FOLDER.relative_to(ROOT)}/ has the bytes of {len(kept)} differences.")
