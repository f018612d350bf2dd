"""Value: forward agrees with the op's reference, in every dtype, within the rounding of both."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np

from app.autodiff.point import blame_op
from app.errors import OpFailed, Unprocessable
from app.gradcheck import noise, rounding
from app.gradcheck.noise import accumulate_max
from app.gradcheck.reference import as_float64, reference_at
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place
from ops import Array

NAME = "value"
# How many random changes show what rounded inputs do to the reference.
DRAWS = 4


def check(target: Target) -> Iterator[Finding]:
    """Compare at the samples in every dtype, and at special points in the widest."""
    if target.op.reference is None:
        yield Finding(Place(NAME, 0, dtype=target.widest), "skipped", "the op has no reference")
        return
    # Forward alone: a gradient that fails is no fault of the value.
    subsamples = [subsample.up_to("outputs") for subsample in target.subsamples]
    for dtype in target.dtypes:
        place = Place(NAME, 0, dtype=dtype)
        comparison = Comparison(place, target.tolerances)
        try:
            for subsample in subsamples:
                if (sample := target.in_dtype(subsample, dtype)) is not None:
                    compare_values(comparison, sample, subsample)
            for sample in target.special_samples if dtype == target.widest else ():
                special = sample.up_to("outputs")
                # The op, or its reference, may raise there: no domain says that it has a value.
                with suppress(OpFailed, Unprocessable):
                    compare_values(comparison, special, special)
            yield comparison.finding("y", "the reference")
        except OpFailed as error:
            yield Finding(place, "fail", error.located)


def compare_values(comparison: Comparison, sample: Sample, wide: Sample) -> None:
    """Compare a sample's outputs; ``wide`` is the same sample in the widest dtype, which bounds their rounding."""
    dtype = comparison.place.dtype
    expected, moves, noises = _expected(sample, rounding.eps(dtype))
    for name, value in expected.items():
        key = "outputs", name
        found = sample.values[key]
        bound = wide.error_bound(key, dtype) + rounding.ROUNDINGS * moves[name] + rounding.NOISES * noises[name]
        with np.errstate(invalid="ignore", over="ignore"):
            bound = bound + rounding.ROUNDINGS * rounding.eps("float64") * np.nan_to_num(np.abs(value))
        allowed = np.zeros(()) if found.dtype.kind in "iub" else bound
        comparison.add(found, value, allowed, key=key, calls=calls(sample, key))


def _expected(sample: Sample, unit: float) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    """Return the outputs of the reference, how far inputs that are rounded to a ``unit`` move them, and their noise.

    The reference cancels inside as forward may, and a graph of forward alone may be simpler than that of the gradient.
    """
    rng, inputs = np.random.default_rng(0), sample.point.inputs
    floats = {name: as_float64(x) for name, x in inputs.items() if x.dtype.kind not in "iub"}
    expected = _reference(sample, inputs)
    moves = {name: np.zeros_like(value) for name, value in expected.items()}
    for _ in range(DRAWS):
        rounded = {name: x * (1 + unit * rng.uniform(-1, 1, x.shape)) for name, x in floats.items()}
        for name, value in _reference(sample, {**inputs, **rounded}).items():
            with np.errstate(invalid="ignore", over="ignore"):
                accumulate_max(moves[name], value - expected[name])
    noises = {name: np.zeros_like(value) for name, value in expected.items()}
    probes = noise.perturbations(floats, dict.fromkeys(floats, rounding.eps("float64")), rng)
    # The reference may reject the probes, which may leave the op's domain.
    with suppress(OpFailed):
        found = noise.measure([_reference(sample, {**inputs, **probe}) for probe in probes], expected)
        noises = {name: _without_jumps(size, expected[name]) for name, size in found.items()}
    return expected, moves, noises


def _without_jumps(noise_of: Array, value: Array) -> Array:
    """Return the noise, 0 where it is as large as a jump; where most numbers are noisy, one without is so by chance."""
    size = np.abs(value[np.isfinite(value)]).max(initial=0.0)
    small = np.where(noise_of <= rounding.eps("float64") ** 0.25 * size, noise_of, 0.0)
    return np.fmax(small, np.median(small)) if small.size else small


def _reference(sample: Sample, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the reference's outputs in float64."""
    names = [slot.name for slot in sample.point.op.outputs]
    shapes = [sample.values["outputs", name].shape for name in names]
    with blame_op(sample.point.op, "reference"), np.errstate(all="ignore"):
        found = reference_at(sample.point, inputs)
        pairs = zip(names, found, shapes, strict=True)
        return {name: np.broadcast_to(np.asarray(y, np.float64), shape) for name, y, shape in pairs}
