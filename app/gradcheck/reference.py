"""An author's NumPy functions: their arguments, the op's reference, and their values with random rounding."""

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar, cast

import numpy as np

from app.autodiff.point import Arrays, Point, blame_op
from app.gradcheck import rounding
from app.runtime.op_errors import op_errors
from ops import Array, OpFault, located, many

# How far values in float64 may be off the reference, relative to the largest: far less than a constant in float32 is.
SAME = 2.0**-36
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


# Floats arrive as float64 whatever the dtype that is checked, because many NumPy functions refuse bfloat16 and lose
# digits in float16. Inputs are rounded to that dtype before, so the widened numbers are those that the op gets.
def as_float64(x: Array) -> Array:
    """Return floats as float64, in an array of the same class; integers and bools keep their dtype."""
    return x if x.dtype.kind in "iub" else np.asanyarray(x, np.float64)


def reference_at(point: Point, inputs: Arrays) -> list[Any]:
    """Return what the op's reference, which it must have, returns for these inputs, as a list."""
    assert point.op.reference is not None
    with np.errstate(all="ignore"):
        found = many(point.op.reference(*map(as_float64, inputs.values()), **point.spec.attrs.model_dump()))
        imaginary: list[Any] = [np.imag(value) for value in found if np.iscomplexobj(value)]
        if any(map(np.any, imaginary)):
            # NumPy would drop the imaginary parts.
            raise TypeError("reference: expected real numbers, got complex ones")
        return found


def has_reference(point: Point) -> bool:
    """Return whether the op's reference, if it has one, returns at a point."""
    if point.op.reference is not None:
        try:
            reference_at(point, point.inputs)
        except BaseException:  # noqa: BLE001 - the op author's code may raise anything, or exit
            return False
    return True


def is_as_reference(point: Point, outputs: Arrays) -> bool:
    """Return whether outputs in a wide dtype are those of the op's reference, if it has one that returns at a point."""
    if point.op.reference is None or not has_reference(point):
        return True
    pairs = zip(map(as_float64, outputs.values()), reference_at(point, point.inputs), strict=True)
    return all(np.allclose(y, expected, SAME, SAME * np.abs(y).max(initial=0), equal_nan=True) for y, expected in pairs)


def is_singular(point: Point) -> bool:
    """Whether the op declares that derivatives are infinite at a point by nature; ``OpFailed`` if it does not say."""
    op, inputs = point.op, {name: as_float64(x) for name, x in point.inputs.items()}
    if op.singular is None:
        return False
    with blame_op(op, "singular"):
        found = np.asarray(op.singular(inputs, point.spec.attrs))
    if found.shape or found.dtype != np.bool_:
        got = f"{found.dtype} of shape {[*found.shape]}"
        expected = "True or False for the whole point, such as bool(np.any(...))"
        with op_errors(op.name):
            raise OpFault("singular", "the point", expected=expected, got=got, where=located(op.singular))
    return bool(found)


# See ``app.autodiff.random_rounding``, which does the same with TensorFlow. What a function computes without NumPy's
# universal functions, or on arrays that it converts, is not off.
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
