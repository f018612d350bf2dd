"""Balance: directions in the units of each number, so that no number of an output or an input hides another.

A random cotangent mixes all numbers of an output, and the largest sets the error bar of all: of
y = x² · (1e-12, 1, 1e12), nothing would be known about the first number. Here each number of a direction is divided by
the size of what it weighs. Where the gradient still has numbers of very different sizes, there is a sample for single
numbers of the outputs too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from app.autodiff.derivatives import gradient
from app.autodiff.point import Arrays
from app.gradcheck import rounding
from app.gradcheck.points import reflected
from app.gradcheck.rounding import Rounding
from app.gradcheck.rows import Rows
from app.gradcheck.sample import DRAWS, Sample
from app.runtime.cancellation import Checkpoint
from app.runtime.modes import Key
from ops import Array
from pullback.gradcheck.number_comparison import ROUNDED
from pullback.gradcheck.numeric import NO_DIGITS
from pullback.gradcheck.scales import HIDDEN, are_far_apart, balance

# The relative step that shows how sensitive numbers are, and how many of them.
STEP, STEPS = 2.0**-8, 3
# The relative size of the random changes of the leaves that show how they move the values.
OFF = 2.0**-16
# How far numbers that are alike are from their median, as a fraction of it.
ALIKE = 2.0**-3
# The most numbers of outputs that have a sample of their own.
SINGLE = 4


@dataclass(frozen=True, eq=False)
class Balanced(Sample):
    """A sample with balanced directions: the rounding of each number is measured by itself, and not by the largest."""

    @cached_property
    def rounding(self) -> Rounding[Key]:
        """The rounding error that each of the values may have, in units of ``eps`` of its dtype, and their noise."""
        of_all, unit = super().rounding, rounding.eps(self.point.spec.dtype)
        pairs = [self._evaluate(self._leaves_off(step, DRAWS)) for step in (OFF, OFF / 2)]
        sums = max(max(leaf.shape, default=1) for leaf in self._leaves.values())
        bounds: dict[Key, Array] = {}
        for key, bound in of_all.bounds.items():
            with np.errstate(invalid="ignore", over="ignore"):
                moved = [np.abs(np.asarray(one[key], np.float64) - two[key]) for one, two in zip(*pairs, strict=True)]
                size = of_all.scales[key] + np.max(moved, axis=0) * 2 / OFF
            # The noise is known of a typical number; that of the others is as large beside them.
            typical = float(np.median(size)) if size.size else 0.0
            noise = of_all.noises.get(key, 0.0) / (unit * typical) if typical else 0.0
            bounds[key] = np.fmin(bound, size * (rounding.ROUNDINGS * sums + rounding.NOISES * noise))
        return replace(of_all, bounds=bounds)


def balanced(sample: Sample, checkpoint: Checkpoint) -> Iterator[Sample]:
    """Yield samples at the same point with balanced directions; none where no number hides another."""
    outputs = _sizes_of_outputs(sample, checkpoint)
    is_mixed = any(are_far_apart(size) for size in outputs.values())
    if not is_mixed and not any(_hides(sample, name) for name in sample.vectors):
        return
    dys = sample.cotangents
    if is_mixed:
        dys = {name: balance(dy, outputs[name]) for name, dy in dys.items()}
    at = gradient(sample.point, dys).run()
    gradients = {name: np.abs(np.asarray(at[name], np.float64)) for name in sample.vectors}
    yield _with(sample, dys, gradients)
    if is_mixed and any(are_far_apart(size) for size in gradients.values()):
        for name, dy in dys.items():
            for i in np.argsort(outputs[name], axis=None)[:SINGLE] if dy.size > 1 else ():
                one = np.where(np.arange(dy.size).reshape(dy.shape) == i, dy, 0).astype(dy.dtype)
                single = {**{other: np.zeros_like(of) for other, of in dys.items()}, name: one}
                found = gradient(sample.point, single).run()
                yield _with(sample, single, {key: np.abs(np.asarray(found[key])) for key in sample.vectors})


def even(sample: Sample, rng: np.random.Generator) -> Arrays:
    """Return a point of the same shapes whose numbers are alike: what is hidden there, the op itself makes small."""
    return {
        name: (np.median(x) * (1 + ALIKE * rng.uniform(-1, 1, x.shape))).astype(x.dtype)
        if name in sample.vectors
        else x
        for name, x in sample.point.inputs.items()
    }


def _hides(sample: Sample, name: str) -> bool:
    """Return whether numbers of a gradient are hidden by far larger ones: their bars are larger than what they are."""
    key, dtype = ("gradients", name), sample.point.spec.dtype
    size = np.abs(np.asarray(sample.values[key], np.float64))
    is_small = (size > rounding.underflow(dtype)) & (size < 2.0**-HIDDEN * size.max(initial=0.0))
    if not is_small.any():
        return False
    bound, scale = sample.error_bound(key, dtype), sample.rounding.scales[key]
    return bool((is_small & (bound > NO_DIGITS * size) & (bound > ROUNDED * scale)).any())


def _with(sample: Sample, dys: Arrays, gradients: Arrays) -> Balanced:
    vectors = {name: balance(v, gradients[name]) for name, v in sample.vectors.items()}
    return Balanced(sample.point, dys, vectors, last=sample.last)


def _sizes_of_outputs(sample: Sample, checkpoint: Checkpoint) -> dict[str, Array]:
    """Return how large each number of the outputs is, or how far it moves with relative changes of the inputs."""
    rng = np.random.default_rng(0)
    inputs = dict[str, Array]()
    for name, x in sample.inputs.items():
        moved = [x * (1 + STEP * rng.choice([-1.0, 1.0], x.shape)) for _ in range(STEPS)]
        inputs[name] = np.stack([x, *(reflected(sample.point.op, name, x, each) for each in moved)]).astype(x.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        values = Rows(sample.point, checkpoint).forward(inputs)
        found: dict[str, Array] = {}
        for name in sample.cotangents:
            y, *moved = np.asarray(values[name], np.float64)
            found[name] = np.max([np.abs(y), *(np.abs(each - y) / STEP for each in moved)], axis=0)
    return found
