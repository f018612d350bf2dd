"""Value: forward agrees with the op's reference, in every dtype, within the rounding of both."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache

import numpy as np

from app.autodiff.point import blame_op
from app.errors import OpFailed, Unprocessable
from app.gradcheck import reference, rounding
from app.gradcheck.outside import noted
from app.gradcheck.reference import as_float64, reference_at
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from ops import Array
from pullback.gradcheck.noise import accumulate_max
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

NAME = "value"
# How many random changes show what rounded inputs do to the reference.
DRAWS = 4
# Floats arrive in float64, with the digits of the dtype: the reference rounds only what it computes.
UNIT = rounding.eps("float64")


def check(target: Target) -> Iterator[Finding]:
    """Compare at the samples in every dtype, and at special points in the widest."""
    if target.op.reference is None:
        yield Finding(Subject(NAME, 0, dtype=target.widest), "skipped", "the op has no reference")
        return
    for dtype in target.dtypes:
        subject = Subject(NAME, 0, dtype=dtype)
        comparison = Comparison(subject, target.options.tolerances)
        try:
            for subsample in target.subsamples:
                if (sample := target.in_dtype(forward_alone(subsample), dtype)) is not None:
                    compare_values(comparison, sample, subsample)
            others = Comparison(subject, target.options.tolerances) if target.op.sample else comparison
            for sample in target.special_samples if dtype == target.widest else ():
                # The op, or its reference, may raise there: no domain says that it has a value.
                with suppress(OpFailed, Unprocessable):
                    compare_values(others, forward_alone(sample), sample)
            yield comparison.finding("y", "the reference")
            if others is not comparison and others.wrong:
                yield from noted(target, [others.finding("y", "the reference")])
        except OpFailed as error:
            yield Finding(subject, "fail", error.located)


def forward_alone(sample: Sample) -> Sample:
    """Return a sample without derivatives: check value must not fail because a gradient does."""
    return sample.up_to("outputs")


def of_bounds(sample: Sample) -> Sample:
    """Return the sample whose rounding bounds that of forward: the sample itself, if all of its values exist.

    Then the other checks share what is measured.
    """
    return sample if sample.is_computable else forward_alone(sample)


def compare_values(comparison: Comparison, sample: Sample, wide: Sample) -> None:
    """Compare a sample's outputs; ``wide`` is that in the widest dtype which bounds their rounding."""
    dtype, expected = comparison.subject.dtype, _reference(sample, sample.point.inputs)
    least, moves = forward_alone(wide), cache(lambda: _moves(sample, expected))
    for name, value in expected.items():
        key = "outputs", name
        found, is_whole = sample.values[key], sample.values[key].dtype.kind in "iub"
        allowed = np.zeros(()) if is_whole else least.least_error_bound(key, dtype)
        if not is_whole and not rounding.is_within(found, value, allowed):
            with np.errstate(invalid="ignore", over="ignore"):
                size = UNIT * np.nan_to_num(np.abs(value))
                allowed = of_bounds(wide).error_bound(key, dtype) + rounding.ROUNDINGS * (size + moves()[name])
        comparison.add(found, value, allowed, key=key, calls=calls(sample, key))


def _moves(sample: Sample, expected: Mapping[str, Array]) -> dict[str, Array]:
    """Return how far the reference, which returns ``expected``, moves with the roundings inside and of its inputs."""
    rng, inputs = np.random.default_rng(0), sample.point.inputs
    terms = reference.terms(lambda inputs: _reference(sample, inputs), inputs)
    moves = {name: np.array(UNIT * size) for name, size in terms.items()}
    for _ in range(DRAWS):
        rounded = {
            name: x if x.dtype.kind in "iub" else as_float64(x) * (1 + UNIT * rng.uniform(-1, 1, x.shape))
            for name, x in inputs.items()
        }
        for name, value in _reference(sample, rounded).items():
            with np.errstate(invalid="ignore", over="ignore"):
                accumulate_max(moves[name], value - expected[name])
    return moves


def _reference(sample: Sample, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the reference's outputs in float64."""
    names = [slot.name for slot in sample.point.op.outputs]
    shapes = [sample.values["outputs", name].shape for name in names]
    with blame_op(sample.point.op, "reference"), np.errstate(all="ignore"):
        found = reference_at(sample.point, inputs)
        pairs = zip(names, found, shapes, strict=True)
        return {name: np.broadcast_to(np.asarray(y, np.float64), shape) for name, y, shape in pairs}
