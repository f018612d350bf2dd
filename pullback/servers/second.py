"""The second order: the action of a Hessian beside numeric derivatives of the server's own gradients."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from pullback.dtypes import Array
from pullback.errors import ModelFailed
from pullback.gradcheck.numeric import Status, slopes
from pullback.gradcheck.slope_comparison import add_slopes, usable_status
from pullback.gradcheck.verdict import Comparison, Finding, Place, Tolerances
from pullback.servers.evidence import Line
from pullback.servers.meter import Meter
from pullback.servers.plan import STEPS_OF_GRADIENTS
from pullback.servers.sample import LARGEST_TOLERANCE, RATIO, Pair, Sample, directions, first_steps

MOST = 256
"""The most numbers of a gradient whose derivatives are compared."""


def second(meter: Meter, samples: Sequence[Sample], place: Place, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare H v with the numeric derivative of the gradient along v."""
    comparisons = {
        pair: Comparison(replace(place, order=2, output=pair[0], input=pair[1]), tolerances)
        for pair in samples[0].gradients
    }
    rng = np.random.default_rng(len(samples))
    for sample in samples:
        for (pair, comparison), along in product(comparisons.items(), sample.inputs):
            v = directions(along, first_steps(sample.point.inputs[along.name]), rng)
            _compare(meter, sample, pair, (along.name, v), comparison)
    for (_, name), comparison in comparisons.items():
        yield comparison.finding(f"H v in {name}", "the numeric derivative of the server's gradient")


def _compare(meter: Meter, sample: Sample, pair: Pair, along: tuple[str, Array], comparison: Comparison) -> None:
    output, name = pair
    dy, (moved, v) = sample.cotangents[output], along
    action, size = (
        np.ravel(each)[:MOST]
        for each in (meter.hessian(sample.point, output, (name, moved), dy, v), sample.size_of(pair))
    )
    line, noise = Line(_gradient(meter, sample, pair, along)), np.ravel(sample.bars[pair])[:MOST]
    numeric = line.judged(slopes(line, np.ones(action.size), sample.unit, noise, count=STEPS_OF_GRADIENTS), noise)
    # The steps are of the size of the inputs: all that they change of a gradient is of its size.
    bar = RATIO * sample.relative_bar(pair) * (np.abs(action) + size)
    with np.errstate(invalid="ignore"):
        apart = np.abs(action - numeric.value)
        is_small = (apart > bar) & (apart <= LARGEST_TOLERANCE * np.abs(action))
    status = usable_status(numeric)
    status = np.where((status == Status.OK) & is_small, Status.TOLERANCE, status)
    add_slopes(comparison, action, numeric, bar, status=status)


def _gradient(meter: Meter, sample: Sample, pair: Pair, along: tuple[str, Array]) -> Callable[[Array], Array]:
    """Return the numbers of a gradient, a column each, as a function of the step along a direction."""
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
                # A large step may leave the model's domain.
                dx = np.full(sample.gradients[pair].shape, np.nan)
            rows.append(np.ravel(dx)[:MOST])
        return np.array(rows)

    return functions
