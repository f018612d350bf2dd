"""The check of an op, step by step, and the report of it."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.autodiff.binding import Decode, bind_attrs
from app.errors import MAX_TEXT, OpFailed, Overloaded, PullbackError, Unprocessable, clip
from app.gradcheck.checks import CHECKS, FOUNDATIONS, SECOND_ORDER, batching, contract
from app.gradcheck.target import Options, Target
from app.gradcheck.verdict import Finding, Place, Verdict, worst_verdict
from app.runtime.cancellation import Checkpoint
from ops import FLOATS, Op

log = logging.getLogger("pullback")


@dataclass(eq=False)
class Step:
    """One check of one op at one choice of attributes: a slice of work."""

    check: str
    target: Target
    report: "Report"
    is_asked: bool = True

    def run(self, checkpoint: Checkpoint) -> None:
        """Do it, and add what it found to the report."""
        began, self.target.checkpoint = time.perf_counter(), checkpoint
        findings = list(self._findings())
        if any(f.place.check == batching.NAME and f.verdict == "fail" for f in findings):
            self.target.distrust_batching()
        seconds = time.perf_counter() - began
        for finding in findings:
            if self.is_asked or finding.verdict == "fail":
                self.report.add(self.target, finding, seconds / len(findings))

    def _findings(self) -> Iterator[Finding]:
        about = Place(self.check, dtype=self.target.widest)
        if self.report.is_broken(self.target):
            yield Finding(about, "skipped", "the contract is broken: see there")
            return
        try:
            yield from CHECKS[self.check](self.target)
        except Overloaded as error:
            yield Finding(about, "skipped", error.detail)
        except PullbackError as error:
            # An op that refuses its own examples, or what was drawn from its domain, is at fault as well.
            own = isinstance(error, Unprocessable) and self.target.inputs is None
            if not own and not isinstance(error, OpFailed):
                raise
            yield Finding(about, "fail", error.detail)
        except Exception as error:
            log.warning("op %s: check %s broke off", self.report.op.name, self.check, exc_info=True)
            told = clip(f"the check broke off: {type(error).__name__}: {error}", MAX_TEXT)
            yield Finding(about, "fail", told)


@dataclass(eq=False)
class Report:
    """What was found of one op."""

    op: Op
    options: Options
    entries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _broken: set[int] = field(default_factory=set[int])

    def add(self, target: Target, finding: Finding, seconds: float) -> None:
        """Add a finding, and what it cost."""
        if finding.place.check == contract.NAME and finding.verdict == "fail":
            self._broken.add(id(target))
        device = next(iter(self.options.devices))
        entry = finding.document()
        self.entries.append({**entry, "attrs": dict(target.attrs), "device": device, "seconds": round(seconds, 6)})

    def is_broken(self, target: Target) -> bool:
        """Tell whether the contract is broken, so that no other check tells anything."""
        return id(target) in self._broken

    @property
    def verdict(self) -> Verdict:
        """The verdict on the op."""
        return worst_verdict([entry["verdict"] for entry in self.entries])

    def document(self) -> dict[str, Any]:
        """Return the report."""
        return {
            "op": self.op.name,
            "verdict": self.verdict,
            "sentence": self._sentence,
            "seed": self.options.seed,
            "points": sum(entry["points"] for entry in self.entries),
            "evaluations": sum(entry["evaluations"] for entry in self.entries),
            "seconds": round(sum(entry["seconds"] for entry in self.entries), 6),
            "checks": self.entries,
        }

    @property
    def _sentence(self) -> str:
        count = {v: sum(entry["verdict"] == v for entry in self.entries) for v in ("pass", "fail", "inconclusive")}
        if not self.entries:
            return f"{self.op.name}: nothing is differentiable in the dtypes asked for"
        failed = sorted({entry["check"] for entry in self.entries if entry["verdict"] == "fail"})
        if failed:
            return f"{self.op.name}: {count['fail']} of {len(self.entries)} checks fail: {', '.join(failed)}"
        told = f"{self.op.name}: {count['pass']} checks pass"
        return told + (f", {count['inconclusive']} cannot tell" if count["inconclusive"] else "")


def steps(
    op: Op,
    options: Options,
    decode: Decode,
    *,
    checks: Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> tuple[Report, list[Step]]:
    """Return the report to be filled and the steps that fill it, one after the other.

    With neither inputs nor attributes: every choice of attributes that the examples make. Inputs are bound here, so
    that what is wrong with them is known at once. Raises ``Unprocessable``.
    """
    report = Report(op, options)
    targets = list(_targets(op, options, decode, inputs, attrs))
    if inputs is not None:
        for target in targets:
            _ = target.points
    asked = [name for name in CHECKS if checks is None or name in checks]
    if max(options.orders) == 1:
        asked = [name for name in asked if name not in SECOND_ORDER]
    names = [name for name in CHECKS if name in asked or name in FOUNDATIONS]
    return report, [Step(name, target, report, name in asked) for target in targets for name in names]


def _targets(
    op: Op, options: Options, decode: Decode, inputs: Mapping[str, Any] | None, attrs: Mapping[str, Any] | None
) -> Iterator[Target]:
    for chosen in _choices(op, attrs, inputs is not None):
        bind_attrs(op, chosen)
        target = Target(op, chosen, options, decode, inputs)
        if target.dtypes and _is_differentiable(op, target.widest):
            yield target


def _choices(op: Op, attrs: Mapping[str, Any] | None, has_inputs: bool) -> Iterable[Mapping[str, Any]]:
    if attrs is not None or has_inputs:
        return [attrs or {}]
    found: list[Mapping[str, Any]] = []
    for example in op.examples:
        if dict(example.attrs) not in found:
            found.append(dict(example.attrs))
    return found


def _is_differentiable(op: Op, dtype: str) -> bool:
    sides = (op.inputs, op.outputs)
    return dtype in FLOATS and all(any(op.is_differentiable(slot, dtype) for slot in side) for side in sides)
