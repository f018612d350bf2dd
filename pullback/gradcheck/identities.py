"""What holds for every derivative, whatever its values.

A vjp is linear in the cotangent: gradients are sums of others, with weights. It is the adjoint of the jvp, and a
Hessian is its own. Computed again, numbers are the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Finding

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


class Inner(NamedTuple):
    """An inner product of derivatives and directions, and how far off it may be."""

    value: Array
    bar: Array


def inner(total: Callable[[Arrays], Array], derivatives: Arrays, directions: Arrays, bars: Arrays) -> Inner:
    """Return the inner product by name, summed by ``total``; derivatives may be off by their ``bars``."""
    products = {name: derivatives[name] * direction for name, direction in directions.items()}
    return Inner(total(products), total({name: bars[name] * np.abs(v) for name, v in directions.items()}))


def compare_inner(comparison: Comparison, left: Inner, right: Inner, **where: Any) -> None:
    """Compare both sides of ⟨dy, jvp(v)⟩ = ⟨vjp(dy), v⟩, or of ⟨u, H v⟩ = ⟨v, H u⟩."""
    comparison.add(left.value, right.value, left.bar + right.bar, **where)


@dataclass
class Repetition:
    """Compares numbers with what they were before, and keeps how far they are apart."""

    comparison: Comparison
    apart: float = 0.0
    """The most by which numbers differ, in their units."""

    def add(self, value: Array, before: Array, allowed: Array, unit: Array | None, **where: Any) -> None:
        """Compare numbers, which may differ by ``allowed``; without a ``unit``, they may not."""
        if unit is not None:
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                apart = np.abs(np.asarray(value, np.float64) - np.asarray(before, np.float64)) / unit
            self.apart = max(self.apart, float(np.nan_to_num(apart, posinf=0.0).max(initial=0.0)))
        self.comparison.add(value, before, allowed, **where)

    def finding(self, what: str, against: str, *, note: str = "", why: str = "") -> Finding:
        """Return the finding, with the ``note`` where numbers that may differ do, and the reason ``why`` it fails."""
        found = self.comparison.finding(what, against)
        more = why if found.verdict == "fail" else note if found.verdict == "pass" and self.apart else ""
        return replace(found, sentence=f"{found.sentence}; {more}") if more else found
