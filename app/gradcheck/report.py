"""The steps that check an op, and the report that they fill."""

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
    """One check of one op with one choice of attributes: a unit of work."""

    check: str
    target: Target
    report: "Report"
    is_requested: bool = True

    def run(self, checkpoint: Checkpoint) -> None:
        """Run the check and add its findings to the report."""
        began, self.target.checkpoint = time.perf_counter(), checkpoint
        findings = list(self._findings())
        if any(f.place.check == batching.NAME and f.verdict == "fail" for f in findings):
            self.target.distrust_batching()
        seconds = time.perf_counter() - began
        for finding in findings:
            if self.is_requested or finding.verdict == "fail":
                self.report.add(self.target, finding, seconds / len(findings))

    def _findings(self) -> Iterator[Finding]:
        place = Place(self.check, dtype=self.target.widest)
        if self.report.has_broken_contract(self.target):
            yield Finding(place, "skipped", "not run, because check contract fails")
            return
        try:
            yield from CHECKS[self.check](self.target)
        except Overloaded as error:
            yield Finding(place, "skipped", error.detail)
        except PullbackError as error:
            # An op that rejects its own examples, or points drawn from its domain, fails the check.
            is_own_point = isinstance(error, Unprocessable) and self.target.inputs is None
            if not is_own_point and not isinstance(error, OpFailed):
                raise
            yield Finding(place, "fail", error.detail)
        except Exception as error:
            log.warning("op %s: check %s raised an exception", self.report.op.name, self.check, exc_info=True)
            sentence = clip(f"the check raised {type(error).__name__}: {error}", MAX_TEXT)
            yield Finding(place, "fail", sentence)


@dataclass(eq=False)
class Report:
    """The findings on one op."""

    op: Op
    options: Options
    entries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _broken: set[int] = field(default_factory=set[int])

    def add(self, target: Target, finding: Finding, seconds: float) -> None:
        """Add a finding, with the seconds that it took."""
        if finding.place.check == contract.NAME and finding.verdict == "fail":
            self._broken.add(id(target))
        device = next(iter(self.options.devices))
        entry = finding.document()
        self.entries.append({**entry, "attrs": dict(target.attrs), "device": device, "seconds": round(seconds, 6)})

    def has_broken_contract(self, target: Target) -> bool:
        """Tell whether check contract failed, so that the other checks would prove nothing."""
        return id(target) in self._broken

    @property
    def verdict(self) -> Verdict:
        """The verdict on the op."""
        return worst_verdict([entry["verdict"] for entry in self.entries])

    def document(self) -> dict[str, Any]:
        """Return the report as JSON."""
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
            return f"{self.op.name}: nothing is differentiable in the requested dtypes"
        failed = sorted({entry["check"] for entry in self.entries if entry["verdict"] == "fail"})
        if failed:
            return f"{self.op.name}: {count['fail']} of {len(self.entries)} checks fail: {', '.join(failed)}"
        sentence = f"{self.op.name}: {count['pass']} checks pass"
        return sentence + (f", {count['inconclusive']} inconclusive" if count["inconclusive"] else "")


def steps(
    op: Op,
    options: Options,
    decode: Decode,
    *,
    checks: Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> tuple[Report, list[Step]]:
    """Return an empty report and the steps that fill it, to be run in order.

    Without inputs and attributes, there are steps for every choice of attributes in the examples. Inputs are bound
    here, so errors in them show before any step runs. Raises ``Unprocessable``.
    """
    report = Report(op, options)
    targets = list(_targets(op, options, decode, inputs, attrs))
    if inputs is not None:
        for target in targets:
            _ = target.points
    requested = [name for name in CHECKS if checks is None or name in checks]
    if max(options.orders) == 1:
        requested = [name for name in requested if name not in SECOND_ORDER]
    names = [name for name in CHECKS if name in requested or name in FOUNDATIONS]
    return report, [Step(name, target, report, name in requested) for target in targets for name in names]


def _targets(
    op: Op, options: Options, decode: Decode, inputs: Mapping[str, Any] | None, attrs: Mapping[str, Any] | None
) -> Iterator[Target]:
    for choice in _choices(op, attrs, inputs is not None):
        bind_attrs(op, choice)
        target = Target(op, choice, options, decode, inputs)
        if target.dtypes and _is_differentiable(op, target.widest):
            yield target


def _choices(op: Op, attrs: Mapping[str, Any] | None, has_inputs: bool) -> Iterable[Mapping[str, Any]]:
    if attrs is not None or has_inputs:
        return [attrs or {}]
    choices: list[Mapping[str, Any]] = []
    for example in op.examples:
        if dict(example.attrs) not in choices:
            choices.append(dict(example.attrs))
    return choices


def _is_differentiable(op: Op, dtype: str) -> bool:
    sides = (op.inputs, op.outputs)
    return dtype in FLOATS and all(any(op.is_differentiable(slot, dtype) for slot in side) for side in sides)
