"""The complex ops of ``plugins`` in NumPy: what they compute there; points to try."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PLUGINS = Path(__file__).parent / "plugins"


class Case(NamedTuple):
    """An op as a NumPy function, its inputs, and what it multiplies its attributes with."""

    of: Callable[..., Any]
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = {}


def draw(rng: np.random.Generator, *shape: int, positive: bool = False) -> Any:
    low = 0.5 if positive else -1.5
    return rng.uniform(low, 1.5, shape) + 1j * rng.uniform(low, 1.5, shape)


def cases() -> Mapping[str, Case]:
    """Return a case of each op; all are analytic in the parts of their inputs."""
    rng = np.random.default_rng(5)
    real, z = rng.uniform(-1.5, 1.5, 3), draw(rng, 3)
    matrix = np.array([[0.1, 1.2, 0.5], [-2.0, 0.25, 0.3], [0.1, -0.4, 3.0]])
    return {
        "cx_square": Case(lambda z: z * z, {"z": z}),
        "cx_conj": Case(np.conj, {"z": z}),
        "cx_abs2": Case(lambda z: np.real(z * np.conj(z)), {"z": z}),
        "cx_exp": Case(np.exp, {"z": z}),
        "cx_sqrt": Case(np.sqrt, {"z": draw(rng, 3, positive=True)}),
        "cx_fft": Case(np.fft.fft, {"z": z}),
        "cx_irfft": Case(lambda z: np.fft.irfft(z, 4), {"z": z}),
        "cx_rfft": Case(np.fft.rfft, {"x": rng.uniform(-1, 1, 4)}),
        "cx_sum": Case(lambda z: np.sum(z * z), {"z": z}),
        "cx_mean": Case(lambda z: np.mean(z * np.conj(z) + z, axis=-1), {"z": draw(rng, 2, 3)}),
        "cx_phase": Case(lambda r, t: r * np.exp(1j * t), {"r": real, "t": real[::-1].copy()}),
        "cx_scale": Case(lambda a, z: 1.5 * a * z, {"a": real, "z": z}, {"s": 1.5}),
        "cx_eig": Case(lambda x: np.trace(x @ x @ x) / 3 + 0j, {"x": matrix}),
        "cx_matmul": Case(lambda a, b: a @ b, {"a": draw(rng, 2, 3), "b": draw(rng, 3, 2)}),
    }
