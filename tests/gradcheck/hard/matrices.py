"""Ops of matrices: constructors, samples, validation, and matrices of mpmath numbers."""

from typing import Any

import numpy as np
from mpmath import mp

from ops import Input, InvalidInput, Output
from tests.gradcheck.hard.making import BOTH, structured

HILBERT = [[1 / (i + j + 1) for j in range(4)] for i in range(4)]
GENERAL = [[2.0, 1.0, 0.5], [-1.0, 3.0, 0.25], [0.5, -0.75, 4.0]]
POSITIVE = [[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 5.0]]
GREATEST_CONDITION = 1e8


def random_general(rng, dtype, attrs):
    """Draw a matrix that is far from singular."""
    return {"a": (rng.uniform(-1, 1, (3, 3)) + 3 * np.eye(3)).astype(dtype)}


def random_positive(rng, dtype, attrs):
    """Draw a symmetric matrix with eigenvalues that are positive and at least 1/2 apart."""
    v, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    a = (v * (0.5 + np.cumsum(rng.uniform(0.5, 1.5, 3)))) @ v.T
    return {"a": ((a + a.T) / 2).astype(dtype)}


def random_near_singular(rng, dtype, attrs):
    """Draw a matrix with a condition of about 1e6."""
    u, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    v, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return {"a": ((u * np.array([1.0, 1e-2, 1e-6])) @ v.T).astype(dtype)}


def random_badly_scaled(rng, dtype, attrs):
    """Draw D A D for a diagonal D from 1e-3 to 1e3."""
    scales = np.array([1e-3, 1.0, 1e3])
    a = random_general(rng, "float64", attrs)["a"]
    return {"a": (scales[:, None] * a * scales).astype(dtype)}


def with_vector(draw):
    """Return a ``sample`` that draws a vector b as well."""

    def sample(rng, dtype, attrs):
        return {**draw(rng, dtype, attrs), "b": rng.uniform(-2, 2, 3).astype(dtype)}

    return sample


def of_matrix(name, function, reference, *, a=GENERAL, y=("M", "M"), sample=random_general, dtypes=BOTH, **changes):
    """Return an op of a square matrix ``a``."""
    slots = {"inputs": (Input("a", dtypes, ("M", "M")),), "outputs": (Output("y", dtypes, y),), "sample": sample}
    return structured(name, function, reference, {"a": a}, **(slots | changes))


def of_system(name, function, reference, *, a=GENERAL, sample=random_general, dtypes=BOTH, **changes):
    """Return an op of a square matrix ``a`` and a vector ``b`` to a vector."""
    slots: dict[str, Any] = {
        "inputs": (Input("a", dtypes, ("M", "M")), Input("b", dtypes, ("M",))),
        "outputs": (Output("y", dtypes, ("M",)),),
        "sample": with_vector(sample),
    }
    return structured(name, function, reference, {"a": a, "b": [1.0, -2.0, 0.5]}, **(slots | changes))


def require_invertible(inputs, attrs):
    """Refuse matrices that are singular, nearly so or not finite."""
    a = np.asarray(inputs["a"], np.float64)
    if not np.isfinite(a).all() or not np.isfinite(c := np.linalg.cond(a)) or (c > GREATEST_CONDITION).any():
        raise InvalidInput("a", "the matrix is not invertible", expected="an invertible matrix", got="another")


def require_diagonal(inputs, attrs):
    """Refuse triangles that are nearly singular, and large numbers."""
    require_finite(inputs, attrs)
    if (np.abs(np.diagonal(np.asarray(inputs["a"], np.float64))) < 1e-3).any():
        raise InvalidInput("a", "the diagonal is too small", expected="a diagonal of at least 1e-3", got="less")


def require_positive_definite(inputs, attrs):
    """Refuse matrices whose symmetric part is not positive definite."""
    a = np.asarray(inputs["a"], np.float64)
    if not np.isfinite(a).all() or np.linalg.eigvalsh((a + np.swapaxes(a, -1, -2)) / 2).min() <= 1e-8 * np.abs(a).max():
        message = "the matrix is not positive definite"
        raise InvalidInput("a", message, expected="a positive definite matrix", got="another")


def require_finite(inputs, attrs):
    """Refuse infinities, NaN and numbers whose products overflow."""
    for name, x in inputs.items():
        if not (np.abs(np.asarray(x, np.float64)) < 1e6).all():
            raise InvalidInput(name, "the numbers are too large", expected="numbers under 1e6", got="another")


def exact_symmetric(a):
    """Return (A + Aᵀ)/2 as an mpmath matrix."""
    m = mp.matrix(a)
    return (m + m.T) / 2


def nested(m):
    """Return an mpmath matrix as nested lists."""
    return [[m[i, j] for j in range(m.cols)] for i in range(m.rows)]


def column(m):
    """Return an mpmath column as a list."""
    return [m[i] for i in range(m.rows)]
