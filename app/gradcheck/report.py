"""The steps that check an op, and the report that they fill."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from app.autodiff.binding import Decode, bind_attrs
from app.autodiff.derived import variant_of
from app.errors import DeadlinePassed, OpFailed, Overloaded, PullbackError, Unprocessable
from app.gradcheck import choices
from app.gradcheck.causes import changes, failure, merge, shares, verdict_on_op, with_narrow_cause
from app.gradcheck.checks import (
    CHECKS,
    FOUNDATIONS,
    HIGHER_ORDER,
    OF_ATTRIBUTES,
    SECOND_ORDER,
    batching,
    contract,
    mutation,
)
from app.gradcheck.claims import need_own_claim
from app.gradcheck.options import Options
from app.gradcheck.target import Target
from app.gradcheck.widening import is_in_examples, label, variants, widened
from app.runtime.cancellation import Checkpoint
from app.tensors.json import dtypes_of
from ops import Op
from pullback.documents import written
from pullback.findings import Check, outcome
from pullback.gradcheck.reproduction import Reproduction
from pullback.gradcheck.verdict import Finding, Subject, Verdict
from pullback.ops._surroundings import Surroundings

log = logging.getLogger("pullback")

OUT_OF_TIME = "not run: out of time"
LESS = "request the first order alone (--order 1), or fewer checks, modes or dtypes"
DEADLINE = f"raise PULLBACK_DEADLINE_S (and Pullback-Deadline-Ms, if sent), or {LESS}"


@dataclass(eq=False)
class Step:
    """One check of one op with one choice of attributes: a unit of work.

    ``entries`` are its findings, each passed to ``publish`` as it is found. ``cure`` says how to allow more
    time to a step that has not ended.
    """

    check: str
    target: Target
    report: "Report"
    is_requested: bool = True
    entries: list[Check] = field(default_factory=list[Check])
    has_begun: bool = False
    has_ended: bool = False
    cure: str = ""
    publish: Callable[[Check], None] = lambda entry: None

    def run(self, checkpoint: Checkpoint) -> None:
        """Run the check and keep its findings. A deadline ends it with the findings up to then."""
        self.has_begun, self.target.checkpoint = True, checkpoint
        began, faults = time.perf_counter(), list[Finding]()
        try:
            # Values overflow, and NumPy would warn; the comparisons report them.
            with np.errstate(all="ignore"):
                for finding in self._findings():
                    now, is_fault = time.perf_counter(), finding.verdict in ("fail", "error")
                    if self.is_requested or is_fault:
                        self.add(finding, now - began)
                    began, faults = now, faults + [finding] * is_fault
        except DeadlinePassed:
            self.target.clear_statuses()
            raise
        except (GeneratorExit, KeyboardInterrupt, SystemExit) as error:  # only the op raises these on this thread
            faults.append(failure(error, self.subject, self.report.op, self.report.options.seed))
            self.add(faults[-1], time.perf_counter() - began)
        finally:
            self._note_broken(faults)
        if faults and self.check == batching.NAME:
            self.target.disable_batching()
        self.has_ended = True

    def _note_broken(self, faults: Sequence[Finding]) -> None:
        """Leave out the checks that rely on what is broken: those of the second order, or all."""
        orders = {finding.subject.order for finding in faults if finding.verdict == "fail"}
        if self.check == contract.NAME and orders == {2}:
            self.target.disable_second()
        elif self.check in (contract.NAME, mutation.NAME) and orders:
            self.report.broken[id(self.target)] = self.check

    def add(self, finding: Finding, seconds: float = 0.0) -> None:
        """Keep and publish a finding that took ``seconds``."""
        entry = self.report.entry(finding, self.target.attrs, seconds, of=self.target.op)
        self.entries.append(entry)
        self.publish(entry)

    def end(self, verdict: Verdict, sentence: str, *, reproduction: Reproduction | None = None) -> None:
        """End the step, which cannot be run to its end, with a finding."""
        self.add(Finding(self.subject, verdict, sentence, reproduction=reproduction))
        self.has_ended = True

    @property
    def reported(self) -> list[Check]:
        """The findings for the report; if the step has not ended, the last one says so."""
        if self.has_ended or not self.is_requested:
            return self.entries
        begun = "; this check began and did not end" if self.has_begun else ""
        finding = Finding(self.subject, "skipped", f"{OUT_OF_TIME}; {self.cure or DEADLINE}{begun}")
        return [*self.entries, self.report.entry(finding, self.target.attrs, of=self.target.op)]

    def _findings(self) -> Iterator[Finding]:
        """Yield the findings. If the op changes what all ops share, restore it at once, and yield a finding on it."""
        for finding in self._checked():
            yield from self._changes()
            yield finding
        yield from self._changes()

    def _changes(self) -> Iterator[Finding]:
        if changed := self.report.surroundings.restore():
            yield changes(changed, self.subject, self.report.op)

    def _checked(self) -> Iterator[Finding]:
        if broken := self.report.broken.get(id(self.target)):
            yield Finding(self.subject, "skipped", f"not run, because check {broken} fails")
            return
        if self.check in SECOND_ORDER and (why := self.target.why_no_second):
            yield Finding(replace(self.subject, order=2), "skipped", why)
            return
        try:
            for finding in CHECKS[self.check](self.target):
                yield with_narrow_cause(finding, lambda: self.target.samples[0].trace)
        except Overloaded as error:
            yield Finding(self.subject, "skipped", error.detail)
        except PullbackError as error:
            # The op rejects its examples, or points that were drawn for it.
            is_rejected = isinstance(error, Unprocessable) and self.target.inputs is None
            if is_rejected and not self.target.has_example:
                sentence = f"the op rejects random points with these attributes: {error.detail}"
                yield Finding(self.subject, "skipped", sentence)
            elif is_rejected or isinstance(error, OpFailed):
                yield failure(error, self.subject, self.report.op, self.report.options.seed)
            else:
                raise
        except Exception as error:
            if changed := [*self._changes()]:
                yield from changed
                return
            log.warning("op %s: check %s broke off", self.report.op.name, self.check, exc_info=True)
            yield failure(error, self.subject, self.report.op, self.report.options.seed)

    @property
    def subject(self) -> Subject:
        """What a finding on the whole step is about."""
        return Subject(self.check, dtype=self.target.widest)


@dataclass(eq=False)
class Report:
    """The findings on one op.

    ``broken`` maps the id of a target to the check that failed there, contract at the first order or mutation: the
    other checks of the target do not count.
    """

    op: Op
    options: Options
    steps: list[Step] = field(default_factory=list[Step])
    broken: dict[int, str] = field(default_factory=dict[int, str])
    unplanned: list[Check] = field(default_factory=list[Check])
    """Why there are no steps, if they cannot be planned."""
    surroundings: Surroundings = field(default_factory=Surroundings)

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
        ``Unprocessable`` for them, and as ``need_own_claim``; without them, whatever goes wrong is a finding of the
        report.
        """
        requested = [name for name in CHECKS if checks is None or name in checks]
        left_out = {1: SECOND_ORDER, 2: HIGHER_ORDER}.get(max(self.options.orders), ())
        requested = [name for name in requested if name not in left_out]
        try:
            targets = list(_targets(self.op, self.options, decode, inputs, attrs))
            for target in targets if inputs is not None else ():
                _ = target.points
            self.steps = [
                Step(name, target, self, name in requested)
                for target in targets
                for name in CHECKS
                if (name in requested or name in FOUNDATIONS) and (target.has_example or name in OF_ATTRIBUTES)
            ]
        except (DeadlinePassed, Overloaded):
            raise
        except Exception as error:
            is_rejected = isinstance(error, Unprocessable)
            if is_rejected and (inputs is not None or attrs is not None):
                raise
            if not is_rejected:
                log.warning("op %s: its checks cannot be planned", self.op.name, exc_info=True)
            subject = Subject(contract.NAME, dtype=self.op.dtypes[0])
            self.steps, self.unplanned = [], [self.entry(failure(error, subject, self.op, self.options.seed), {})]
        for step in self.steps:
            need_own_claim(self.op, bind_attrs(self.op, step.target.attrs))

    @property
    def outline(self) -> list[str]:
        """The check and the attributes of each step as text: equal where two processes plan the same steps."""
        return [f"{step.check} {dict(step.target.attrs)} {label(step.target.op)}" for step in self.steps]

    def reset(self) -> None:
        """Forget what the steps have found, to run them again."""
        for step in self.steps:
            step.entries.clear()
            step.has_begun, step.has_ended, step.cure = False, False, ""

    @property
    def has_begun(self) -> bool:
        """Whether any step has begun."""
        return any(step.has_begun for step in self.steps)

    def entry(self, finding: Finding, attrs: Mapping[str, Any], seconds: float = 0.0, of: Op | None = None) -> Check:
        """Return a finding on a variant, with these attributes unless it has others, which took ``seconds``."""
        if of is not None and (which := label(of)):
            finding = replace(finding, sentence=f"{finding.sentence}; {which}")
        found = finding.entry(attrs, next(iter(self.options.devices)), seconds)
        if finding.reproduction and found.dtype not in self.op.dtypes:
            why = f"no operation returns this number: the op does not declare {found.dtype}"
            found = replace(found, reproduce=why, shows=None, point=None)
        if not self.op.is_complex:
            return found
        places = [replace(place, dtype=self.op.shown_dtype(place.dtype)) for place in found.places]
        return replace(found, dtype=self.op.shown_dtype(found.dtype), places=places)

    def document(self) -> dict[str, Any]:
        """Return the report as JSON; steps that have not ended are skipped, because the time is over."""
        reported = (*self.unplanned, *(entry for step in self.steps for entry in step.reported))
        entries = merge(reported)
        unfinished = sum(len(entry.places) for entry in entries if entry.sentence.startswith(OUT_OF_TIME))
        verdict = verdict_on_op(reported)
        not_run = f"{unfinished} not run: out of time" if unfinished else ""
        nothing = f"{self.op.name}: nothing is differentiable in the requested dtypes"
        return {
            "op": self.op.name,
            "verdict": "inconclusive" if verdict == "pass" and unfinished else verdict,
            "sentence": outcome(self.op.name, entries, not_run) if entries else nothing,
            "seed": self.options.seed,
            "modes": [*(self.options.modes or self.op.modes)],
            "devices": [*self.options.devices],
            "points": sum(entry.points for entry in entries),
            "evaluations": sum(entry.evaluations for entry in entries),
            "seconds": round(sum(entry.seconds for entry in entries), 6),
            "unfinished": unfinished,
            "coverage": written(shares(reported)),
            "checks": written(entries),
        }


def _targets(
    op: Op, options: Options, decode: Decode, inputs: Mapping[str, Any] | None, attrs: Mapping[str, Any] | None
) -> Iterator[Target]:
    """Yield the targets in which something is differentiable, for each variant of the op."""
    wanted = options.dtypes or op.dtypes
    options = replace(options, dtypes=tuple([op.dtype_named(dtype) or dtype for dtype in wanted]))
    for one in variants(op) if inputs is None else [variant_of(op, dtypes_of(inputs))]:
        yield from _of_variant(widened(one, options, decode), options, decode, inputs, attrs)


def _of_variant(
    op: Op, options: Options, decode: Decode, inputs: Mapping[str, Any] | None, attrs: Mapping[str, Any] | None
) -> Iterator[Target]:
    is_given = attrs is not None or inputs is not None
    has_example = inputs is not None or is_in_examples(op)
    chosen = [attrs or {}] if is_given else choices.of_examples(op)
    others = [] if is_given or not has_example else choices.of_no_example(op, options.seed)
    for choice in (*chosen, *others):
        bind_attrs(op, choice)
        target = Target(op, choice, options, decode, inputs, are_attrs_given=is_given)
        if choice in others or not has_example:
            alone = replace(options, dtypes=(target.widest,), modes=("graph",))
            target = Target(op, choice, alone, decode, has_example=False)
        sides = (op.inputs, op.outputs)
        if target.dtypes and all(any(op.is_differentiable(slot, target.widest) for slot in side) for side in sides):
            yield target
