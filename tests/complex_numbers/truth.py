"""Derivatives of NumPy functions of real and complex arrays, by differences of fourth order in the parts.

The convention is TensorFlow's: the gradient of a real L in z is ∂L/∂re z + i ∂L/∂im z, and ⟨a, b⟩ = Re Σ conj(a) b.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

STEP = 5e-3
Arrays = Mapping[str, Any]


def inner(a: Any, b: Any) -> float:
    return float(np.real(np.sum(np.conj(a) * b)))


def along(f: Callable[[float], Any]) -> Any:
    """Return the derivative of f at 0."""
    h = STEP
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def jvp(f: Callable[[Arrays], Any], xs: Arrays, txs: Arrays) -> Any:
    return along(lambda h: f({name: x + h * txs[name] if name in txs else x for name, x in xs.items()}))


def gradient(of: Callable[[Arrays], float], xs: Arrays) -> dict[str, Any]:
    """Return the gradient of a real function."""
    found = {}
    for name, x in xs.items():
        units = (1, 1j) if np.iscomplexobj(x) else (1,)
        found[name] = np.zeros(x.shape, x.dtype)
        for i in np.ndindex(x.shape):
            for unit in units:
                step = np.zeros(x.shape, x.dtype)
                step[i] = unit
                found[name][i] += unit * jvp(of, xs, {name: step})
    return found


def vjp(f: Callable[[Arrays], Any], xs: Arrays, dy: Any) -> dict[str, Any]:
    return gradient(lambda xs: inner(dy, f(xs)), xs)


def hvp(f: Callable[[Arrays], Any], xs: Arrays, dy: Any, vs: Arrays) -> dict[str, Any]:
    """Return the gradient of ⟨vjp(dy), v⟩ = ⟨dy, jvp(v)⟩."""
    return gradient(lambda xs: inner(dy, jvp(f, xs, vs)), xs)
