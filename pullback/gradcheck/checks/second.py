"""The second order: the action of a Hessian beside numeric derivatives of the server's own gradients."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from pullback.dtypes import Array
from pullback.errors import ModelFailed
from pullback.gradcheck.checks.evidence import Line
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.numeric import COVERAGE, Slopes, Status, slopes
from pullback.gradcheck.plan import STEPS_OF_GRADIENTS
from pullback.gradcheck.sample import RATIO, Pair, Sample, directions, first_steps
from pullback.gradcheck.slope_comparison import add_slopes, usable_status
from pullback.gradcheck.verdict import Finding, Subject

MOST = 256
"""The most numbers of a gradient whose derivatives are compared."""


def second(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare H v with the numeric derivative of the gradient along v."""
    comparisons = {
        pair: Comparison(replace(subject, order=2, output=pair[0], input=pair[1]), tolerances)
        for pair in samples[0].gradients
    }
    rng = np.random.default_rng(len(samples))
    for sample in samples:
        for (pair, comparison), along in product(comparisons.items(), sample.inputs):
            v = directions(along, first_steps(sample.point.inputs[along.name]), rng)
            _compare(meter, sample, pair, (along.name, v), comparison)
    for (_, name), comparison in comparisons.items():
        yield comparison.finding(f"H v in {name}", "the numeric derivative of the gradient")


def _compare(meter: Meter, sample: Sample, pair: Pair, along: tuple[str, Array], comparison: Comparison) -> None:
    output, name = pair
    dy, (moved, v) = sample.cotangents[output], along
    action, size = (
        np.ravel(each)[:MOST]
        for each in (meter.hessian(sample.point, output, (name, moved), dy, v), sample.size_of(pair))
    )
    noise = np.ravel(sample.bars[pair])[:MOST]
    line = Line(_gradient(meter, sample, pair, along, lambda dx: np.ravel(dx)[:MOST]))
    numeric = line.judged(slopes(line, np.ones(action.size), sample.unit, noise, count=STEPS_OF_GRADIENTS), noise)
    # The steps are of the size of the inputs: all that they change of a gradient is of its size.
    bar = RATIO * sample.relative_bar(pair) * (np.abs(action) + size)
    with np.errstate(invalid="ignore"):
        apart = np.abs(action - numeric.value)
        is_small = (apart > bar) & (apart <= meter.function.tolerance * np.abs(action))
    status = usable_status(numeric)
    status = np.where((status == Status.OK) & is_small, Status.TOLERANCE, status)
    add_slopes(comparison, action, numeric, bar, status=status)


def transposed(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare ⟨u, H v⟩ with ⟨v, H u⟩, where H is the Jacobian of the gradient in the first input: numeric, both."""
    pair = (samples[0].outputs[0].name, samples[0].inputs[0].name)
    subject = replace(subject, order=2, output=pair[0], input=pair[1])
    comparison, rng = Comparison(subject, tolerances), np.random.default_rng(len(samples))
    for sample in samples:
        size = first_steps(sample.point.inputs[pair[1]])
        u, v = (directions(sample.inputs[0], size, rng) for _ in range(2))
        forth, back = (_slope_of_sum(meter, sample, pair, *two) for two in ((v, u), (u, v)))
        status = np.where(usable_status(forth) == Status.OK, usable_status(back), usable_status(forth))
        with np.errstate(invalid="ignore"):
            apart = np.abs(forth.value - back.value)
            is_small = apart <= meter.function.tolerance * (np.abs(forth.value) + np.abs(back.value))
        error, bar = forth.error + back.error, np.zeros(1)
        is_off = apart > COVERAGE * error
        status = np.where((status == Status.OK) & is_small & is_off, Status.TOLERANCE, status)
        numeric = Slopes(back.value, error, back.status, 0)
        add_slopes(comparison, forth.value, numeric, bar, status=status, index=_nowhere)
    yield comparison.finding("⟨u, J v⟩ of the Jacobian J of the gradient", "⟨v, J u⟩")


def _nowhere(_: int) -> None:
    return None


def _slope_of_sum(meter: Meter, sample: Sample, pair: Pair, along: Array, times: Array) -> Slopes:
    """Return the derivative along a direction of the sum of a gradient times ``times``."""
    line = Line(_gradient(meter, sample, pair, (pair[1], along), lambda dx: np.sum(dx * times)[None]))
    noise = np.sum(sample.bars[pair] * np.abs(times))[None]
    return line.judged(slopes(line, np.ones(1), sample.unit, noise, count=STEPS_OF_GRADIENTS), noise)


def _gradient(
    meter: Meter, sample: Sample, pair: Pair, along: tuple[str, Array], of: Callable[[Array], Array]
) -> Callable[[Array], Array]:
    """Return numbers ``of`` a gradient, a column each, as a function of the step along a direction."""
    (output, name), (moved, v) = pair, along

    def functions(steps: Array) -> Array:
        rows: list[Array] = []
        for step in steps[:, 0]:
            try:
                point = sample.moved(moved, step * v)
                dx = (
                    meter.vjp(point, output, sample.cotangents[output], [name])[name]
                    if step
                    else sample.gradients[pair]
                )
            except ModelFailed:
                # A large step may leave the function's domain.
                dx = np.full(sample.gradients[pair].shape, np.nan)
            rows.append(of(dx))
        return np.array(rows)

    return functions
