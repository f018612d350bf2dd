"""Random rounding of an author's NumPy functions: arrays whose results are off by a random fraction of themselves.

See ``app.autodiff.random_rounding``, which does the same with TensorFlow. What a function computes without NumPy's
universal functions, or on arrays that it converts, is not off.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar, cast

import numpy as np

from app.gradcheck import rounding
from ops import Array

Q = TypeVar("Q", bound=str)

# Functions that select numbers or change their sign, which round nothing.
EXACT = frozenset(
    (np.absolute, np.ceil, np.conjugate, np.copysign, np.fabs, np.floor, np.fmax, np.fmin, np.maximum, np.minimum)
) | {np.negative, np.positive, np.rint, np.sign, np.trunc}
# Functions of complex numbers whose results are off in the real and in the imaginary part by themselves: others may
# cancel inside.
COMPLEX_SUMS = frozenset((np.add, np.subtract, *EXACT))
# How often the errors are drawn.
DRAWS = 6


def terms(function: Callable[[dict[str, Array]], Mapping[Q, Array]], inputs: Mapping[str, Array]) -> dict[Q, Array]:
    """Return the terms of a function's results at its inputs: see ``rounding.terms_of``."""
    scale = rounding.measured_with("float64")
    whole, half = (with_errors(function, inputs, size) for size in (scale, scale / 2))
    return rounding.terms_of(function(dict(inputs)), whole, half, scale)


def with_errors(
    function: Callable[[dict[str, Array]], Mapping[Q, Array]], inputs: Mapping[str, Array], scale: float
) -> list[Mapping[Q, Array]]:
    """Return the results with random errors inside the function: ``DRAWS`` sets, with the same numbers for any scale.

    Integers and bools are exact. Where the function cannot work with arrays of this class, the results are those
    without errors.
    """
    found: list[Mapping[Q, Array]] = []
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        arrays = {n: x if x.dtype.kind in "iub" else RandomArray.of(x, scale, rng) for n, x in inputs.items()}
        try:
            found.append(function(cast(dict[str, Array], arrays)))
        except Exception:  # noqa: BLE001 - the op author's code may raise anything for a class that it does not know
            found.append(function(dict(inputs)))
    return found


class RandomArray(np.ndarray[Any, np.dtype[Any]]):
    """An array of floats; the results of arithmetic on it are off by random numbers, of deviation ``scale``."""

    scale: float = 0.0
    rng: np.random.Generator | None = None

    @classmethod
    def of(cls, x: Array, scale: float, rng: np.random.Generator) -> Self:
        """Return a view of an array."""
        view = np.asarray(x).view(cls)
        view.scale, view.rng = scale, rng
        return view

    def __array_finalize__(self, obj: Any) -> None:
        """Take over the random numbers of the array that this one is made from."""
        self.scale, self.rng = getattr(obj, "scale", 0.0), getattr(obj, "rng", None)

    def __array_ufunc__(self, ufunc: np.ufunc, method: Any, *inputs: Any, **options: Any) -> Any:
        """Apply a universal function, or one of its methods, and let the result be off."""
        source = next((x for x in (*inputs, *options.get("out", ())) if isinstance(x, RandomArray)), self)
        plain = [_plain(x) for x in inputs]
        if "out" in options:
            options["out"] = tuple(_plain(x) for x in options["out"])
        results: Any = getattr(ufunc, method)(*plain, **options)
        if np.iscomplexobj(results) and ufunc not in COMPLEX_SUMS and method == "__call__" and "out" not in options:
            results = ufunc(*map(source._moved, plain), **options)
        if results is None or method == "at":
            return results
        if isinstance(results, tuple):
            return tuple(source._off(ufunc, y) for y in cast(tuple[Any, ...], results))
        return source._off(ufunc, results)

    def _off(self, ufunc: np.ufunc, result: Any) -> Any:
        y = np.asarray(result)
        if y.dtype.kind not in "fc" or self.rng is None:
            return result
        return RandomArray.of(y if ufunc in EXACT else self._moved(y), self.scale, self.rng)

    def _moved(self, x: Any) -> Any:
        """Return numbers that are off; real and imaginary parts are off by themselves."""
        y: Array = np.asarray(x)
        if y.dtype.kind not in "fc" or self.rng is None:
            return x
        parts = np.ascontiguousarray(y)[..., None].view(np.finfo(y.dtype).dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            moved = np.asarray(parts * (1 + self.scale * self.rng.standard_normal(parts.shape)))
        return np.reshape(moved.view(y.dtype), y.shape)


def _plain(x: Any) -> Any:
    return np.asarray(cast(Array, x)) if isinstance(x, RandomArray) else x
