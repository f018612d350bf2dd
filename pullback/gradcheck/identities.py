"""What follows from a vjp that is linear in the cotangent: gradients that are sums of others, with weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import Status

K = TypeVar("K")
Arrays = Mapping[str, Array]
Gradients = Mapping[K, Array]


class Identity(NamedTuple, Generic[K]):
    """If the vjp is linear, that of ``cotangents`` is a sum of gradients with their weights.

    The cotangents are about ``size`` times as large as those of the first gradient.
    """

    left: str
    right: str
    cotangents: Arrays
    terms: tuple[tuple[float, Gradients[K]], ...]
    size: float = 1.0


def sums(vjp: Callable[[Arrays], Gradients[K]], a: Arrays, of_a: Gradients[K], b: Arrays) -> Iterator[Identity[K]]:
    """Yield identities of sums of cotangents ``a``, whose gradients are ``of_a``, and ``b``.

    The second shows a formula for the cotangent 1 alone, with which many libraries test.
    """
    both = {name: 2 * dy + 3 * b[name] for name, dy in a.items()}
    yield Identity("vjp(2a + 3b)", "2 vjp(a) + 3 vjp(b)", both, ((2.0, of_a), (3.0, vjp(b))))
    ones = {name: np.ones_like(dy) for name, dy in a.items()}
    rest = {name: ones[name] - dy for name, dy in a.items()}
    yield Identity("vjp(1)", "vjp(a) + vjp(1 - a)", ones, ((1.0, of_a), (1.0, vjp(rest))))


def scaled(a: Arrays, of_a: Gradients[K], scales: Sequence[float]) -> Iterator[Identity[K]]:
    """Yield identities of scaled cotangents: large ones show a clip, and 0 a division by the cotangent."""
    for scale in scales:
        dys = {name: (scale * dy).astype(dy.dtype) for name, dy in a.items()}
        yield Identity("vjp(s a)", f"s vjp(a) for s = {', '.join(map(_text, scales))}", dys, ((scale, of_a),), scale)


def compare(
    comparison: Comparison,
    identity: Identity[K],
    key: K,
    found: Array,
    bar: Callable[[Array], Array],
    *,
    scale: Array,
    **where: Any,
) -> None:
    """Compare the gradient of an identity with the sum, which may be off by ``bar(size of the terms)``.

    ``scale`` is that of the terms inside of one gradient.
    """
    parts = [weight * np.asarray(of[key], np.float64) for weight, of in identity.terms]
    with np.errstate(invalid="ignore"):
        expected = np.sum(parts, axis=0)
    # At a pole there is nothing to compare.
    is_finite = np.logical_and.reduce([np.isfinite(x) for x in (expected, *parts)])
    status = np.where(is_finite, Status.OK, Status.NOT_FINITE)
    weights = sum(abs(weight) for weight, _ in identity.terms)
    scale = np.fmax(weights * scale, np.max(np.abs(expected), where=is_finite, initial=0.0))
    comparison.add(found, expected, bar(np.sum(np.abs(parts), axis=0)), status=status, scale=scale, **where)


def _text(scale: float) -> str:
    return f"2^{np.log2(scale):.0f}" if scale else "0"
