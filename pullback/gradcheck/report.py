"""The checks of a function, one after the other, and the report on them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pullback import __version__
from pullback.documents import written
from pullback.dtypes import Array
from pullback.errors import BadAnswer, ModelFailed, PullbackError
from pullback.findings import Check, Coverage, outcome
from pullback.gradcheck import floats
from pullback.gradcheck.checks import properties
from pullback.gradcheck.checks.derivative import Derivatives, moves
from pullback.gradcheck.checks.freshness import freshness
from pullback.gradcheck.checks.second import second, transposed
from pullback.gradcheck.checks.sizes import sizes
from pullback.gradcheck.checks.variants import mutation, variants
from pullback.gradcheck.function import Arrays, Function, Point, Slot
from pullback.gradcheck.meter import Meter, OutOfBudget
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.plan import PROPERTIES, Plan
from pullback.gradcheck.sample import Pair, PointRefused, Sample, take, values_at, with_level
from pullback.gradcheck.units import units
from pullback.gradcheck.verdict import Finding, Subject, worst_verdict
from pullback.wording import counted

SMALL_TOLERANCE = 2.0**-20
"""Below it, a function is not known to iterate."""
SMALL = 1e-2
"""The relative difference below which the tolerance of a solver may be the cause."""
PROPERTY_CHECKS = {
    "determinism": properties.determinism,
    "subset": properties.subset,
    "linearity": properties.linearity,
    "adjoint": properties.adjoint,
    "symmetry": properties.symmetry,
    "second": second,
    "freshness": freshness,
    "dtypes": variants("dtypes"),
    "modes": variants("modes"),
    "layouts": variants("layouts"),
    "sizes": sizes,
    "mutation": mutation,
}
CHECKS = ("derivative", *PROPERTIES)
Document = dict[str, Any]


def scope(plan: Plan, evaluations: int, points: int) -> str:
    """Return it in a few sentences."""
    spent = f"{counted(evaluations, 'evaluation')} at {counted(points, 'point')}."
    if not plan.is_whole:
        shown = (
            "One output, one input and one direction of this input were chosen at random. An error of the gradient "
            "there was found if it is larger than the error bar; what others have is not known."
        )
    elif not plan.steps:
        shown = (
            "Each input was moved in one random direction. An error of the gradient in this direction was found if it "
            "is larger than the error bar; which number is wrong is not known."
        )
    elif plan.coordinates:
        shown = (
            f"Each input was moved in {plan.directions} random directions, in which all its numbers change, and up to "
            f"{plan.coordinates} of its numbers were moved alone. An error of the gradient was found if it is larger "
            "than the error bar in one of these."
        )
    else:
        shown = (
            "Each input was moved in a random direction, in which all its numbers change. An error of the gradient was "
            "found if it is larger than the error bar there; which number is wrong is not known."
        )
    if plan.measures_noise:
        noise = "The noise of values and gradients was measured."
    else:
        noise = "Too few to measure noise: values and gradients count as off by 1e-6, the tolerance of a solver."
    rest = (
        ""
        if plan.has_properties
        else (" Subsets, linearity, adjoint, symmetry, determinism and the second order were not checked.")
    )
    if not plan.looks_nearby:
        rest += " Whether answers are those of other points was not checked."
    return f"{spent} {shown} {noise}{rest} What happens at other points, and at kinks, is not shown."


@dataclass(eq=False)
class FunctionReport:
    """The checks of a function: what to do, and what was found so far."""

    target: str
    protocol: str
    function: Function
    points: Sequence[Point]
    are_given: bool
    plan: Plan
    checks: Sequence[str]
    budget: int
    seed: int
    tolerances: Tolerances
    config: Mapping[str, Any]
    entries: list[Check] = field(default_factory=list[Check])
    running: str = "contract"
    done: int = 0
    samples: Sequence[Sample] = ()
    units: Mapping[str, Array] = field(default_factory=dict[str, Array])
    ended: bool = False
    _began: float = field(default_factory=time.perf_counter)

    @property
    def planned(self) -> int:
        """The evaluations that the plan takes."""
        return self.plan.cost(self.function, list(self.checks), len(self.points))

    def run(self, tell: Callable[[int], None]) -> None:
        """Run all checks; ``tell(done)`` is called before each evaluation, and may raise to end the work."""

        def count(done: int) -> None:
            self.done = done
            tell(done)

        meter = Meter(self.function, self.budget, count)
        meter.spare = self.budget - self.planned
        # Values overflow, and NumPy would warn; the comparisons report them.
        with np.errstate(all="ignore"):
            try:
                for finding in self._findings(meter):
                    self.done = meter.done
                    self._add(finding)
            except PullbackError as error:
                self.fail(error)
                return
        self.done, self.ended = meter.done, True

    def _findings(self, meter: Meter) -> Iterator[Finding]:
        contract = self._subject("contract")
        try:
            samples = self.samples = self._samples(meter)
        except PointRefused:
            raise
        except BadAnswer as error:
            yield Finding(contract, "fail", f"the gradient fails at a point that has values: {error}")
            return
        at = counted(len(samples), "point")
        yield Finding(contract, "pass", f"values and gradients have their declared sizes at {at}")
        for check in self.checks:
            self.running = check
            # The same finding at each size would say nothing new.
            if check == "sizes" and any(each.check == "derivative" and each.verdict == "fail" for each in self.entries):
                continue
            try:
                if check == "derivative":
                    yield from self._derivative(meter, samples)
                else:
                    of_energy = check == "symmetry" and self.function.is_energy
                    run = transposed if of_energy else PROPERTY_CHECKS[check]
                    # At a kink, derivatives of all orders may be what they like, or NaN.
                    usual = [sample for sample in samples if not sample.point.is_special]
                    yield from run(meter, usual, self._subject(check, 1), self.tolerances)
            except OutOfBudget:
                yield Finding(self._subject(check), "skipped", "not run: out of evaluations; raise --budget")
            except BadAnswer as error:
                yield Finding(self._subject(check), "fail", f"it fails at a point that has values: {error}")

    def _samples(self, meter: Meter) -> list[Sample]:
        rng, found = np.random.default_rng([self.seed, 1]), list[Sample]()
        slots = (self.function.inputs, self.function.outputs)
        if not self.plan.is_whole:
            slots = ([_one_of(slots[0], rng)], [_one_of(slots[1], rng)])
        points: list[tuple[Point, Arrays]] = []
        for point in self.points:
            try:
                points.append((point, values_at(meter, point)))
            except PointRefused:
                # One random point that the function accepts is enough.
                if self.are_given or not points:
                    raise
        self.units = meter.units = units(
            meter, points, slots[1], moves=self.plan.steps > 0, rng=np.random.default_rng([self.seed, 3])
        )
        for point, values in points:
            in_units = {name: y / self.units[name] for name, y in values.items()}
            try:
                found.append(take(meter, point, in_units, slots, rng, measures_noise=self.plan.measures_noise))
            except ModelFailed:
                # At zeros and equal numbers there may be no derivative, as of a solution where a matrix is singular.
                if not point.is_special:
                    raise
        level = max(sample.level for sample in found)
        return [with_level(sample, level) for sample in found] if self.plan.measures_noise else found

    def _derivative(self, meter: Meter, samples: Sequence[Sample]) -> Iterator[Finding]:
        comparisons: dict[Pair, Comparison] = {
            pair: Comparison(self._subject("derivative", 1, *pair), self.tolerances) for pair in samples[0].gradients
        }
        derivatives = Derivatives(meter, self.plan, comparisons)
        rng = np.random.default_rng([self.seed, 2])
        for sample in samples:
            for move in moves(sample, self.plan, rng):
                derivatives.compare(sample, move)
        derivatives.judge_hidden()
        for pair, comparison in comparisons.items():
            finding = comparison.finding(f"d{pair[1]}", "the numeric derivative of the values")
            worst = finding.worst
            if (
                self.function.tolerance < SMALL_TOLERANCE
                and finding.verdict == "fail"
                and finding.worst
                and finding.worst.relative < SMALL
            ):
                narrow = ", or numbers in float32 inside," if finding.worst.relative < SMALL_TOLERANCE else ""
                note = f"; a loop that ends by a tolerance{narrow} would explain it: allow for it with --relative"
                finding = replace(finding, sentence=finding.sentence + note)
            if not self.plan.measures_noise and finding.verdict == "fail" and worst and worst.relative < SMALL:
                note = "; a solver's tolerance above 1e-6 would explain it: raise --budget to measure it, or --relative"
                finding = replace(finding, sentence=finding.sentence + note)
            if (off := derivatives.tolerated.get(pair)) is not None:
                note = f"; off by up to {off:.1g} of it, which is wrong unless the function iterates"
                finding = replace(finding, sentence=finding.sentence + note)
            if rates := derivatives.rates.get(pair):
                note = f"; rates of the Taylor remainder (2 if the gradient is right, 1 if wrong): {rates}"
                finding = replace(finding, sentence=finding.sentence + note)
            yield finding

    def _subject(
        self, check: str, order: int | None = None, output: str | None = None, name: str | None = None
    ) -> Subject:
        dtype = floats.narrowest(slot.dtype for slot in (*self.function.inputs, *self.function.outputs))
        return Subject(check, order, output, name, self.protocol, dtype)

    def _add(self, finding: Finding) -> None:
        now = time.perf_counter()
        self.entries.append(finding.entry(self.config, seconds=round(now - self._began, 6)))
        self._began = now

    def fail(self, error: PullbackError) -> None:
        """Add that the checks cannot go on."""
        self._add(Finding(self._subject(self.running), "error", f"the check broke off: {error}"))

    def document(self) -> Document:
        """Return the report as JSON, in the form of those on ops, with the ``scope`` of what was checked."""
        left = [] if self.ended else [check for check in ("contract", *self.checks) if check not in self._ran]
        verdict = worst_verdict([entry.verdict for entry in self.entries])
        return {
            "op": self.target,
            "verdict": verdict,
            "sentence": outcome(self.target, self.entries, f"not run: {', '.join(left)}" if left else ""),
            "scope": self._scope(),
            "origin": {"version": __version__},
            "seed": self.seed,
            "points": sum(entry.points for entry in self.entries),
            "evaluations": self.done,
            "seconds": round(sum(entry.seconds for entry in self.entries), 6),
            "unfinished": len(left) + sum(entry.sentence.startswith("not run: out of") for entry in self.entries),
            "coverage": [
                written(Coverage(each.check, each.order, each.dtype, each.points, each.compared, each.digits))
                for each in self.entries
                if each.points and each.verdict != "skipped"
            ],
            "checks": [_spelled(written(entry)) for entry in self.entries],
        }

    def _scope(self) -> str:
        if self.ended and self.samples:
            return f"{scope(self.plan, self.done, len(self.samples))} {self.function.remark}".rstrip()
        return f"{counted(self.done, 'evaluation')}. The checks ended early: they show only what the report lists."

    @property
    def _ran(self) -> set[str]:
        return {entry.check for entry in self.entries}


def _number(value: Any) -> Any:
    """Return a number that is not finite as the text that reports have in its place."""
    if not isinstance(value, float) or np.isfinite(value):
        return value
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _spelled(entry: Document) -> Document:
    """Return an entry whose worst number has text in place of numbers that JSON does not have."""
    worst = entry["worst"]
    return entry if worst is None else {**entry, "worst": {name: _number(value) for name, value in worst.items()}}


def _one_of(slots: Sequence[Slot], rng: np.random.Generator) -> Slot:
    return slots[int(rng.integers(len(slots)))]
