"""Whether an op is smooth along lines: its values, gradients and Hessian-vector products are polynomials there.

A smooth function is a polynomial near a number, but for rounding: its Chebyshev coefficients vanish from some degree
on. Those of a kink, a jump or a pole do not, in the function or in any derivative.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.autodiff.derivatives import Kind
from app.autodiff.point import Arrays
from app.gradcheck.comparison import first_step
from app.gradcheck.rows import Rows, numbers_of, stack
from app.gradcheck.sample import sample_at
from app.gradcheck.target import Target
from app.runtime.modes import Key
from ops import Array

# The degree of the polynomials, and the first one whose coefficient must vanish.
DEGREE, FIRST_ZERO = 16, 11
# How far the polynomials reach, as a fraction of the first step of a numeric derivative: an approximate kink is near.
REACH = 2.0**-4
# How large a coefficient that vanishes may be, in roundings of the largest number; and how many of these are a move.
ROUNDINGS, MOVES = 256.0, 64.0


@dataclass(frozen=True)
class Line:
    """A line through a point, along which the numbers of one input move, from -1 to 1 times ``way``."""

    inputs: Arrays
    name: str
    way: Array


def reach(target: Target, name: str, x: Array) -> Array:
    """Return how far the numbers of an input move from x."""
    return REACH * first_step(target.op, name, x)


def values_along(target: Target, lines: Sequence[Line], last: Kind) -> dict[Key, Array]:
    """Return values at the nodes of lines of one shape, as (lines, nodes, ...); none where that is too much work.

    Raises ``OpFailed`` and ``Unprocessable`` where the op cannot be evaluated.
    """
    point = target.bind(lines[0].inputs, target.widest)
    count = len(lines) * (DEGREE + 1)
    if count * max(numbers_of(point), point.cost) > target.options.work:
        return {}
    nodes = np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
    nodes[DEGREE // 2] = 0.0
    rows = stack([{**p.inputs, p.name: p.inputs[p.name] + node * p.way} for p in lines for node in nodes])
    sample = sample_at(point, target.rng("values"), last=last)
    dys, vectors = (
        {name: np.broadcast_to(x, (count, *x.shape)) for name, x in named.items()}
        for named in (sample.cotangents, sample.vectors)
    )
    values = Rows(point, target.checkpoint).values_up_to(last, rows, dys, vectors)
    return {key: np.reshape(value, (len(lines), len(nodes), -1)) for key, value in values.items()}


def are_polynomials(values: Array) -> bool:
    """Return whether values at nodes are finite, and their highest Chebyshev coefficients vanish along each line."""
    y = np.asarray(values, np.float64)
    k = np.arange(FIRST_ZERO, DEGREE + 1)[:, None]
    weights = np.cos(np.pi * k * np.arange(DEGREE + 1) / DEGREE) * 2 / DEGREE
    weights[:, [0, -1]] /= 2
    highest = np.abs(np.einsum("kn,pni->pki", weights, y))
    return bool(np.isfinite(y).all() and (highest.max(axis=(1, 2), initial=0.0) <= _rounding(values)).all())


def have_moved(values: Array) -> bool:
    """Return whether values at nodes differ along a line by more than rounding."""
    y = np.asarray(values, np.float64)
    return bool((np.ptp(y, axis=1).max(axis=1, initial=0.0) > MOVES * _rounding(values)).any())


def _rounding(values: Array) -> Array:
    """Return the rounding of the values along each line; integers do not round."""
    unit = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
    return ROUNDINGS * unit * np.abs(np.asarray(values, np.float64)).max(axis=(1, 2), initial=0.0)
