"""The ops whose uncertainties ``make digits`` compares with true errors, and their true values in 60 digits."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any
from unittest.mock import patch

import numpy as np
from mpmath import mp

from app.autodiff.derivatives import Kind
from app.runtime.modes import Key
from ops import Array, Derivative, Function, discover
from tests.gradcheck.hard import MODULES
from tests.gradcheck.hard.exact import Hard, Where, true_values
from tests.rows.corpus import INDEPENDENT

# NumPy's functions call these methods of the numbers in arrays of objects.
METHODS = {name: name for name in ("cos", "cosh", "exp", "expm1", "log", "log1p", "sin", "sinh", "tan", "tanh")}
METHODS |= {"arccos": "acos", "arcsin": "asin", "arctan": "atan", "arcsinh": "asinh", "arctanh": "atanh"}


def truths() -> Iterator[tuple[str, Hard]]:
    """Yield ops with their true functions, and the line of the table that each counts for.

    These are the registered ops, those of the row corpus, and those that are hard to compute.
    """
    for name, op in discover().ops.items():
        if function := _REGISTERED.get(name, op.reference if name in _GENERIC else None):
            yield name, Hard(op, _of_arrays(function))
    for op in INDEPENDENT.values():
        function = getattr(op.reference, "__wrapped__", None)  # without the cast to float64
        if function is not None:
            yield "rows", Hard(op, _of_arrays(function))
    for module in MODULES:
        for hard in module.OPS.values():
            if hard.exact is not None:
                yield module.__name__.rpartition(".")[2].replace("_", " "), hard


def values(truth: Hard, where: Where, kinds: Sequence[Kind]) -> dict[Key, Array]:
    """Return the true values of some kinds, up to the highest order that the op claims to be the derivative.

    Raises ``TypeError``, ``ValueError`` or ``ZeroDivisionError`` if there are none.
    """
    claim = truth.op.claim(truth.op.attrs.model_validate(dict(where.attrs)))
    orders = takewhile(lambda order: isinstance(order, Derivative), (claim.first, claim.second))
    return true_values(truth, where, kinds[: 1 + sum(1 for _ in orders)])


def _of_arrays(function: Function) -> Function:
    """Return a function of arrays as one of nested lists of numbers of mpmath."""

    def exact(*inputs: Any, **attrs: Any) -> Any:
        for name, method in METHODS.items():
            setattr(mp.mpf, name, _method(getattr(mp, method)))
        # Functions of ``math`` compute in float64, and a derivative of theirs is a difference of roundings.
        with patch.object(mp.mpf, "__float__", _refuse):
            return function(*map(_array, inputs), **attrs)

    return exact


def _refuse(number: Any) -> float:
    raise TypeError(f"expected a function of mpmath's numbers, got one that computes {number} in float64")


def _method(function: Function) -> Function:
    """Return a function of mpmath as a method: those of ``mp`` are bound already."""

    def method(number: Any) -> Any:
        return function(number)

    return method


def _array(nested: Any) -> Array:
    whole = np.array(nested)
    return whole if whole.dtype.kind in "iub" else np.array(nested, object)


def _softplus(x: Array) -> Array:
    return np.log(1 + np.exp(x))


def _cross_entropy(logits: Array, labels: Array) -> Array:
    return np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(logits)), labels]


def _identity(x: Array, **_: Any) -> Array:
    return x


def _eig(a: Array, **_: Any) -> tuple[Array, Array]:
    found = [mp.eigsy(mp.matrix(((one + one.T) / 2).tolist())) for one in a.reshape(-1, *a.shape[-2:])]
    w, v = np.array([list(w) for w, _ in found], object), np.array([v.tolist() for _, v in found], object)
    largest = np.take_along_axis(v, np.argmax(np.abs(v), axis=-2)[:, None], axis=-2)
    return w.reshape(a.shape[:-1]), (v * np.sign(largest)).reshape(a.shape)


def _matvec(a: Array, x: Array) -> Array:
    return x @ a.T


def _mean(x: Array) -> Array:
    return x.sum(-1) / x.shape[-1]


def _norm(x: Array) -> Array:
    return np.sqrt((x * x).sum(-1))


def _relu(x: Array) -> Array:
    return x if x > 0 else 0 * x


def _sum(x: Array) -> Array:
    return x.sum(-1)


_REGISTERED: dict[str, Function] = {
    "clip_gradient": _identity,
    "log1pexp": _softplus,
    "log1pexp2": _softplus,
    "matmul": np.matmul,
    "matvec": _matvec,
    "mean": _mean,
    "relu": _relu,
    "safe_norm": _norm,
    "self_adjoint_eig": _eig,
    "softmax_cross_entropy": _cross_entropy,
    "sum": _sum,
}
# The references of these compute with any numbers.
_GENERIC = ("add", "concat", "divide", "multiply", "roi_pool", "slice", "square", "subtract", "transpose", "zero_out")
