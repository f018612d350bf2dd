"""Whether answers are those of their own inputs, or of others that the server was asked for before.

A cache whose key rounds the inputs, or lacks some of them, answers with the bits of another point.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pullback.dtypes import Array
from pullback.errors import ModelFailed
from pullback.gradcheck import floats
from pullback.gradcheck.checks.nearby import Ray, Stale
from pullback.gradcheck.checks.questions import ORDERS, VALUES, Key, Questions
from pullback.gradcheck.function import LARGEST_TOLERANCE, Point, Slot
from pullback.gradcheck.meter import Meter, OutOfBudget
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.plan import alone
from pullback.gradcheck.reproduction import Requests
from pullback.gradcheck.sample import Sample, first_steps, largest_of, vectors
from pullback.gradcheck.verdict import Finding, Subject

SMALLEST = -34
"""The smallest step, in powers of two of the first step of a numeric derivative."""
OF_DIGITS = 0.7
"""It is not smaller than this part of the digits of a number, so that the others move."""
ALONE = 2.0**-3
"""How far a number moves alone, in first steps."""
MOST_SEEDS = 16
MOST_LINES = 3
"""On how many lines answers of a kind are looked at that are the same close by."""
SMOOTH = 2.0**6
"""How many times more than the inputs a smooth answer may change, both as fractions of their sizes."""


def freshness(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Ask at points nearby, and with one number moved: no answer is that of a point that was asked for before."""
    subject, asked, rest = replace(subject, order=None), 0, ""
    for k, sample in enumerate(samples):
        output = sample.outputs[k % len(sample.outputs)].name
        nearby = Nearby(meter, sample, output, subject, tolerances, _rng_at(sample))
        has_found = False
        try:
            for finding in nearby.findings():
                yield finding
                has_found = True
        except OutOfBudget:
            if not (k or has_found or nearby.has_looked):
                raise
            rest = ", as far as there were evaluations to look"
        if has_found:
            return
        asked += nearby.asked
    sentence = f"no answer is that of another point, close by or with one number moved{rest}"
    yield Finding(subject, "pass", sentence, asked)


@dataclass(eq=False)
class Nearby:
    """The answers near one point, about one ``output``."""

    meter: Meter
    sample: Sample
    output: str
    subject: Subject
    tolerances: Tolerances
    rng: np.random.Generator
    asked: int = 0
    has_looked: bool = False
    """Whether one of the answers that are the same close by was looked at."""

    def __post_init__(self) -> None:
        """Draw an output, and the direction of the steps."""
        sample = self.sample
        self._direction = {
            slot.name: vectors(slot, self.rng) * first_steps(sample.point.inputs[slot.name]) for slot in sample.inputs
        }
        self._ask = Questions(self.meter, sample, self.output, self._direction)
        eps = max(floats.eps(slot.dtype) for slot in sample.inputs)
        self._smallest = max(SMALLEST, math.ceil(OF_DIGITS * math.log2(eps)))

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong."""
        ask = self._ask
        try:
            here, near = ask.both(self.sample.point, ask.moved(self._direction, 2.0**self._smallest))
        except ModelFailed:
            return
        same = self._same(here, near)
        yield from self._with_one_number_moved()
        for kind in sorted(ORDERS, key=lambda each: each != "gradient"):
            for key in [key for key in same if key.kind == kind][:MOST_LINES]:
                finding = self._on_a_line(Ray(ask, key, here[key]), may_be_solver=VALUES in same)
                self.has_looked = True
                if finding is not None:
                    yield finding
                    break

    def _same(self, here: Mapping[Key, Array], others: Mapping[Key, Array]) -> list[Key]:
        """Return the questions whose answers have the same bits."""
        self.asked += len(others)
        return [key for key, answer in others.items() if np.array_equal(answer, here[key])]

    def _on_a_line(self, ray: Ray, *, may_be_solver: bool) -> Finding | None:
        """Look further where the answer at the smallest step has the same bits."""
        stale = ray.stale(self._smallest)
        if stale is None:
            return None
        along, likely = self._ask.along(ray.key), ray.likely_key()
        distance = max(largest_of(stale.step * each) for each in along.values())
        why = f"it has the same bits up to {distance:.2g} from the point that was asked before"
        why += f", as with a cache whose key {likely}" if likely else ""
        # A solver that starts at its last solution, and finds that good enough, forgets it at another point.
        is_small = np.abs(stale.answer - stale.expected) <= LARGEST_TOLERANCE * largest_of(stale.expected)
        forgets = may_be_solver and bool(is_small.all()) and not ray.is_kept(stale.step)
        status = Status.TOLERANCE if forgets else Status.OK
        return self._finding(ray.key, stale, why, self._ask.moved(along, stale.step), status)

    def _with_one_number_moved(self) -> Iterator[Finding]:
        """Move one number alone. An answer with the same bits must stay when the others move a little, too."""
        ask, kinds = self._ask, set[str]()
        for k, (slot, at) in enumerate(_alone(self.sample.inputs, self.rng)):
            name, direction = slot.name, self._direction[slot.name]
            by = np.where(at, direction, 0.0)
            point = ask.moved({name: by}, ALONE)
            # No two of these have a number in common, which may be all that a key has.
            beside = ask.moved(self._direction | {name: direction - by}, -(k + 1) * 2.0**self._smallest, point)
            number = name + (f"[{', '.join(map(str, np.argwhere(at)[0]))}]" if at.ndim else "")
            why = f"it has the same bits wherever {number} is, as with a cache whose key lacks that"
            try:
                here, answers = ask.both(self.sample.point, point)
                moved = {key: ask.ask(key, beside) for key in self._same(here, answers)}
            except ModelFailed:
                continue
            for key, expected in moved.items():
                bar = ask.bar(key, answers[key]) + SMOOTH * 2.0**self._smallest * largest_of(expected)
                stale = Stale(answers[key], expected, bar, ALONE)
                if stale.is_wrong and key.kind not in kinds:
                    kinds.add(key.kind)
                    yield self._finding(key, stale, why, point)

    def _finding(self, key: Key, stale: Stale, why: str, point: Point, status: Status = Status.OK) -> Finding:
        """Return the finding on an answer that is the same at a point as where it was asked first."""
        ask, kind = self._ask, key.kind
        subject = replace(self.subject, order=ORDERS[kind], output=ask.output, input=key.input or None)
        comparison, unit = Comparison(subject, self.tolerances), ask.unit(key)
        requests = [request for each in (self.sample.point, point) if (request := ask.request(key, each)) is not None]
        calls = _always(Requests(requests, f"{requests[0].shows}, the same in both answers,")) if requests else None
        comparison.add(
            *(stale.answer * unit, stale.expected * unit, stale.bar * unit),
            status=np.full(stale.answer.shape, status, object),
            index=_nowhere if stale.is_sum else None,
            calls=calls,
        )
        what = f"the sum of {ask.what(key)} times a direction" if stale.is_sum else ask.what(key)
        finding = comparison.finding(what, stale.shown_by)
        return replace(finding, sentence=f"{finding.sentence}; {why}")


def _rng_at(sample: Sample) -> np.random.Generator:
    """Return other random numbers at each point: steps from one must not lead to where steps from another have led."""
    numbers = np.concatenate([np.ravel(x)[:MOST_SEEDS] for x in sample.point.inputs.values()])
    return np.random.default_rng(np.frombuffer(numbers.tobytes(), np.uint32))


def _alone(slots: Sequence[Slot], rng: np.random.Generator) -> Iterator[tuple[Slot, Array]]:
    """Yield random numbers that move alone, each as a mask of its input."""
    for slot in slots:
        size = math.prod(slot.shape)
        for at in rng.permutation(size)[: alone(len(slots), size)]:
            mask = np.zeros(size, bool)
            mask[at] = True
            yield slot, mask.reshape(slot.shape)


def _always(asked: Requests) -> Callable[[int], Requests]:
    return lambda _: asked


def _nowhere(_: int) -> None:
    return None
