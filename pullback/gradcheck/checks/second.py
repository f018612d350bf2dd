"""The second order: the action of a Hessian beside numeric derivatives of the server's own gradients."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pullback.dtypes import Array
from pullback.errors import ModelFailed
from pullback.gradcheck.checks.evidence import Line
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.numeric import COVERAGE, Slopes, Status, slopes
from pullback.gradcheck.plan import STEPS_OF_GRADIENTS
from pullback.gradcheck.sample import RATIO, Pair, Sample, directions, first_steps
from pullback.gradcheck.slope_comparison import add_slopes, scale_of, usable_status
from pullback.gradcheck.verdict import Finding, Subject

MOST = 256
"""The most numbers of a gradient whose derivatives are compared."""

CLOSER = 0.2
"""How much smaller the steps are where larger ones show no derivative, as a part of the digits."""


def second(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare H v with the numeric derivative of the gradient along v, which moves all inputs at once."""
    comparisons = {
        pair: Comparison(replace(subject, order=2, output=pair[0], input=pair[1]), tolerances)
        for pair in samples[0].gradients
    }
    rng = np.random.default_rng(len(samples))
    for sample in samples:
        for slot in sample.outputs:
            v = {x.name: directions(x, first_steps(sample.point.inputs[x.name]), rng) for x in sample.inputs}
            _compare(meter, sample, slot.name, v, comparisons)
    for (_, name), comparison in comparisons.items():
        yield comparison.finding(f"H v in {name}", "the numeric derivative of the gradient")


def _compare(meter: Meter, sample: Sample, output: str, v: Arrays, comparisons: Mapping[Pair, Comparison]) -> None:
    pairs, dy = [(output, name) for name in v], sample.cotangents[output]

    def some(of: Callable[[Pair], Array]) -> Array:
        return np.concatenate([np.ravel(of(pair))[:MOST] for pair in pairs])

    def action_in(pair: Pair) -> Array:
        parts = [meter.hessian(sample.point, output, (pair[1], other), dy, along) for other, along in v.items()]
        return np.sum(parts, axis=0)

    action, noise = some(action_in), some(lambda pair: sample.bars[pair])
    of_step = _gradients(meter, sample, output, v, lambda dxs: some(lambda pair: dxs[pair[1]]))
    terms = some(sample.terms)

    def estimate(scale: float) -> Slopes:
        line = Line(of_step)
        found = slopes(line, np.full(action.size, scale), sample.unit, noise, count=STEPS_OF_GRADIENTS)
        return line.judged(found, noise, terms)

    # The steps are of the size of the inputs: all that they change of a gradient is of its size.
    relative = some(lambda pair: np.full(v[pair[1]].shape, RATIO * sample.relative_bar(pair)))
    bar = relative * (np.abs(action) + some(sample.size_of))
    numeric = _estimate_twice(meter, estimate, 2.0 ** round(CLOSER * np.log2(sample.unit)), action, bar)
    with np.errstate(invalid="ignore"):
        apart = np.abs(action - numeric.value)
        is_small = (apart > bar) & (apart <= meter.function.tolerance * np.abs(action))
    status = usable_status(numeric)
    status = np.where((status == Status.OK) & is_small, Status.TOLERANCE, status)
    scale, begin = scale_of(action, numeric, terms), 0
    for pair in pairs:
        part = slice(begin, begin := begin + min(MOST, v[pair[1]].size))
        slopes_of = Slopes(numeric.value[part], numeric.error[part], numeric.status[part], numeric.evaluations)
        add_slopes(comparisons[pair], action[part], slopes_of, bar[part], scale=scale[part], status=status[part])


def _estimate_twice(
    meter: Meter, estimate: Callable[[float], Slopes], closer: float, action: Array, bar: Array
) -> Slopes:
    """Return the slopes at steps of a scale of 1, or at ``closer`` ones: larger steps cross the kinks of hidden units.

    Those are taken, if there are evaluations to spare, where the first prove nothing, or an action looks wrong.
    """
    before = meter.done
    first, cost = estimate(1.0), meter.done - before
    with np.errstate(invalid="ignore"):
        is_wrong = np.abs(action - first.value) > COVERAGE * first.error + bar
    is_doubtful = is_wrong | (usable_status(first) != Status.OK)
    if not is_doubtful.any() or meter.spare < cost:
        return first
    second, meter.spare = estimate(closer), meter.spare - cost
    is_better = is_doubtful & ((usable_status(second) == Status.OK) | is_wrong)
    parts = ((second.value, first.value), (second.error, first.error), (second.status, first.status))
    value, error, status = (np.where(is_better, *each) for each in parts)
    return Slopes(value, error, status, first.evaluations + second.evaluations)


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
    output, name = pair
    line = Line(_gradients(meter, sample, output, {name: along}, lambda dxs: np.sum(dxs[name] * times)[None]))
    noise = np.sum(sample.bars[pair] * np.abs(times))[None]
    return line.judged(slopes(line, np.ones(1), sample.unit, noise, count=STEPS_OF_GRADIENTS), noise)


def _gradients(
    meter: Meter, sample: Sample, output: str, v: Arrays, of: Callable[[Arrays], Array]
) -> Callable[[Array], Array]:
    """Return numbers ``of`` the gradients in some inputs, a column each, as a function of the step along ``v``."""
    here = {name: sample.gradients[output, name] for name in v}

    def functions(steps: Array) -> Array:
        rows: list[Array] = []
        for step in steps[:, 0]:
            try:
                point = sample.moved({name: step * along for name, along in v.items()})
                dxs = meter.vjp(point, output, sample.cotangents[output], list(v)) if step else here
            except ModelFailed:
                # A large step may leave the function's domain.
                dxs = {name: np.full(dx.shape, np.nan) for name, dx in here.items()}
            rows.append(of(dxs))
        return np.array(rows)

    return functions
