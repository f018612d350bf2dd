"""The steps that check an op, and the report that they fill."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from app.autodiff.binding import Decode, bind_attrs
from app.errors import DeadlinePassed, OpFailed, Overloaded, PullbackError, Unprocessable
from app.gradcheck import choices
from app.gradcheck.breakdown import breakdown
from app.gradcheck.checks import CHECKS, FOUNDATIONS, OF_ATTRIBUTES, SECOND_ORDER, batching, contract
from app.gradcheck.places import merge
from app.gradcheck.target import Options, Target
from app.gradcheck.verdict import VERDICTS, Finding, Place, worst_verdict
from app.runtime.cancellation import Checkpoint
from ops import FLOATS, Op

log = logging.getLogger("pullback")


OUT_OF_TIME = "not run: out of time"
DEADLINE = "raise PULLBACK_DEADLINE_S (and Pullback-Deadline-Ms, if sent), or request fewer checks, modes or dtypes"


class Entry(NamedTuple):
    """A finding in a report, with the attributes of its target and the seconds that it took."""

    finding: Finding
    attrs: Mapping[str, Any]
    seconds: float


@dataclass(eq=False)
class Step:
    """One check of one op with one choice of attributes: a unit of work.

    ``cure`` says how to allow more time to a step that has not ended.
    """

    check: str
    target: Target
    report: "Report"
    is_requested: bool = True
    entries: list[Entry] = field(default_factory=list[Entry])
    has_begun: bool = False
    has_ended: bool = False
    cure: str = ""

    def run(self, checkpoint: Checkpoint) -> None:
        """Run the check and keep its findings. A deadline ends it with the findings up to then."""
        self.has_begun, self.target.checkpoint = True, checkpoint
        began, is_trusted = time.perf_counter(), True
        try:
            for finding in self._quiet_findings():
                now = time.perf_counter()
                self._add(finding, now - began)
                is_trusted = is_trusted and finding.verdict not in ("fail", "error")
                began = now
        except DeadlinePassed:
            self.target.forget_troubles()
            raise
        if self.check == batching.NAME and not is_trusted:
            self.target.distrust_batching()
        self.has_ended = True

    @property
    def reported(self) -> list[Entry]:
        """The findings for the report; if the step has not ended, the last one says so."""
        ended, entries = self.has_ended, list(self.entries)
        if ended or not self.is_requested:
            return entries
        sentence = f"{OUT_OF_TIME}; {self.cure or DEADLINE}"
        return [*entries, Entry(Finding(self._place, "skipped", sentence), self.target.attrs, 0.0)]

    def _add(self, finding: Finding, seconds: float) -> None:
        if self.is_requested or finding.verdict in ("fail", "error"):
            self.entries.append(Entry(finding, self.target.attrs, seconds))
        if self.check == contract.NAME and finding.verdict == "fail":
            self.report.broken.add(id(self.target))

    def _quiet_findings(self) -> Iterator[Finding]:
        """Yield the findings, without NumPy's warnings: values overflow, and comparisons tell."""
        with np.errstate(all="ignore"):
            yield from self._findings()

    def _findings(self) -> Iterator[Finding]:
        if id(self.target) in self.report.broken:
            yield Finding(self._place, "skipped", "not run, because check contract fails")
            return
        try:
            yield from CHECKS[self.check](self.target)
        except Overloaded as error:
            yield Finding(self._place, "skipped", error.detail)
        except PullbackError as error:
            if not self._is_fault_of_op(error):
                raise
            if isinstance(error, Unprocessable) and not self.target.has_example:
                yield Finding(
                    self._place, "skipped", f"the op rejects random points with these attributes: {error.detail}"
                )
                return
            yield Finding(self._place, "fail", error.located if isinstance(error, OpFailed) else error.detail)
        except Exception as error:
            op = self.report.op.name
            log.warning("op %s: check %s broke off", op, self.check, exc_info=True)
            yield breakdown(error, self._place, op, self.report.options.seed)

    def _is_fault_of_op(self, error: PullbackError) -> bool:
        """Tell whether an error fails the check: the op fails, or rejects its examples or points drawn for it."""
        if isinstance(error, Unprocessable):
            return self.target.inputs is None
        return isinstance(error, OpFailed)

    @property
    def _place(self) -> Place:
        return Place(self.check, dtype=self.target.widest)


@dataclass(eq=False)
class Report:
    """The findings on one op; ``broken`` has the targets that fail check contract, so that no other check counts."""

    op: Op
    options: Options
    steps: list[Step] = field(default_factory=list[Step])
    broken: set[int] = field(default_factory=set[int])
    unplanned: list[Entry] = field(default_factory=list[Entry])
    """Why there are no steps, if they cannot be planned."""

    def plan(
        self,
        decode: Decode,
        *,
        checks: Sequence[str] | None = None,
        inputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the steps, which are to be run in order.

        Without inputs and attributes, there are steps for every choice of attributes in the examples, and some for
        choices that no example has. Inputs are bound here, so errors in them show before any step runs. Raises
        ``Unprocessable`` for them; without them, whatever goes wrong is a finding of the report.
        """
        try:
            self._plan(decode, checks, inputs, attrs)
        except (Unprocessable, DeadlinePassed, Overloaded) as error:
            if not isinstance(error, Unprocessable) or inputs is not None or attrs is not None:
                raise
            self._break_off(error)
        except Exception as error:
            log.warning("op %s: its checks cannot be planned", self.op.name, exc_info=True)
            self._break_off(error)

    def _break_off(self, error: Exception) -> None:
        """Report that the checks cannot be planned, which is a fail of check contract if the op is at fault."""
        place = Place(contract.NAME, dtype=self.op.dtypes[0])
        finding = breakdown(error, place, self.op.name, self.options.seed)
        if isinstance(error, OpFailed | Unprocessable):
            finding = Finding(place, "fail", error.located if isinstance(error, OpFailed) else error.detail)
        self.steps, self.unplanned = [], [Entry(finding, {}, 0.0)]

    def _plan(
        self,
        decode: Decode,
        checks: Sequence[str] | None,
        inputs: Mapping[str, Any] | None,
        attrs: Mapping[str, Any] | None,
    ) -> None:
        targets = list(_targets(self.op, self.options, decode, inputs, attrs))
        if inputs is not None:
            for target in targets:
                _ = target.points
        requested = [name for name in CHECKS if checks is None or name in checks]
        if max(self.options.orders) == 1:
            requested = [name for name in requested if name not in SECOND_ORDER]
        names = [name for name in CHECKS if name in requested or name in FOUNDATIONS]
        self.steps = [
            Step(name, target, self, name in requested)
            for target in targets
            for name in names
            if target.has_example or name in OF_ATTRIBUTES
        ]

    @property
    def has_begun(self) -> bool:
        """Whether any step has begun."""
        return any(step.has_begun for step in self.steps)

    def document(self) -> dict[str, Any]:
        """Return the report as JSON; steps that have not ended are skipped, because the time is over."""
        reported = (*self.unplanned, *(entry for step in self.steps for entry in step.reported))
        entries = merge(map(self._document, reported))
        unfinished = sum(len(entry["places"]) for entry in entries if entry["sentence"].startswith(OUT_OF_TIME))
        return {
            "op": self.op.name,
            "verdict": worst_verdict([entry["verdict"] for entry in entries]),
            "sentence": self._sentence(entries, unfinished),
            "seed": self.options.seed,
            "points": sum(entry["points"] for entry in entries),
            "evaluations": sum(entry["evaluations"] for entry in entries),
            "seconds": round(sum(entry["seconds"] for entry in entries), 6),
            "unfinished": unfinished,
            "checks": entries,
        }

    def _document(self, entry: Entry) -> dict[str, Any]:
        device = next(iter(self.options.devices))
        more = {"attrs": dict(entry.attrs), "device": device, "seconds": entry.seconds}
        return {**entry.finding.document(), **more}

    def _sentence(self, entries: Sequence[Mapping[str, Any]], unfinished: int) -> str:
        if not entries:
            return f"{self.op.name}: nothing is differentiable in the requested dtypes"
        count = {verdict: sum(entry["verdict"] == verdict for entry in entries) for verdict in VERDICTS}
        failed = sorted({entry["check"] for entry in entries if entry["verdict"] == "fail"})
        if failed:
            parts = [f"{count['fail']} of {len(entries)} checks fail: {', '.join(failed)}"]
        else:
            parts = [f"{count['pass']} checks pass"]
        parts += [f"{count['inconclusive']} inconclusive"] if count["inconclusive"] and not failed else []
        parts += [f"{count['error']} broke off by a fault of the checker"] if count["error"] else []
        parts += [f"{unfinished} not run: out of time"] if unfinished else []
        return f"{self.op.name}: {', '.join(parts)}"


def _targets(
    op: Op, options: Options, decode: Decode, inputs: Mapping[str, Any] | None, attrs: Mapping[str, Any] | None
) -> Iterator[Target]:
    chosen = [attrs or {}] if attrs is not None or inputs is not None else choices.of_examples(op)
    others = [] if attrs is not None or inputs is not None else choices.of_no_example(op, options.seed)
    for choice in (*chosen, *others):
        bind_attrs(op, choice)
        target = Target(op, choice, options, decode, inputs)
        if choice in others:
            alone = replace(options, dtypes=(target.widest,), modes=("graph",))
            target = Target(op, choice, alone, decode, has_example=False)
        if target.dtypes and _is_differentiable(op, target.widest):
            yield target


def _is_differentiable(op: Op, dtype: str) -> bool:
    sides = (op.inputs, op.outputs)
    return dtype in FLOATS and all(any(op.is_differentiable(slot, dtype) for slot in side) for side in sides)
