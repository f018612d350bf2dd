"""Verify the gradients of another implementation against the op's own, within the rounding of their dtype."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import Absent, vjp
from app.autodiff.point import Point
from app.errors import wrong
from app.gradcheck import rounding
from app.gradcheck.verdict import Comparison, Element, Place, worst_verdict
from app.runtime.modes import Key
from app.tensors.dtypes import DTYPES
from ops import FLOATS, Array

BLOCKS = 32


@dataclass(frozen=True)
class Tolerances:
    """What widens comparisons on top of rounding: a number, and a fraction of the expected number."""

    absolute: float = 0.0
    relative: float = 0.0


def verify(
    point: Point, cotangents: Mapping[str, Array] | None, gradients: Mapping[str, Array], tolerances: Tolerances
) -> dict[str, Any]:
    """Return the verdict on gradients with respect to some inputs, and on blocks of each along its leading axis.

    All arrays are in the point's dtype; the op runs in its widest one. Raises ``Unprocessable`` if a gradient does not
    have the shape of its input.
    """
    _check_shapes(point, gradients)
    wide, dys = _widen(point), None
    if cotangents is not None:
        dtypes = wide.spec.outputs.dtypes
        dys = {name: dy.astype(DTYPES[dtypes[name]].numpy) for name, dy in cotangents.items()}
    expected, units = _expected_gradients(wide, tuple(gradients), dys)
    documents: dict[str, dict[str, Any]] = {}
    for name, theirs in gradients.items():
        place = Place("verify", 1, input=name, dtype=point.spec.dtype)
        documents[name] = _document(_compare(place, theirs, expected[name], units[name], tolerances), wide)
    return {
        "op": point.op.name,
        "verdict": worst_verdict([document["verdict"] for document in documents.values()]),
        "sentence": " ".join(document["sentence"] + "." for document in documents.values()),
        "dtype": point.spec.dtype,
        "against": wide.spec.dtype,
        "gradients": documents,
    }


def _check_shapes(point: Point, gradients: Mapping[str, Array]) -> None:
    for name, theirs in gradients.items():
        if theirs.shape != (shape := point.inputs[name].shape):
            message = f"shape mismatch in the gradient of {name}"
            raise wrong(("gradients", name), message, expected=str(list(shape)), got=str(list(theirs.shape)))


def _widen(point: Point) -> Point:
    """Return the point in the op's widest dtype, in which its numbers are exact."""
    dtype = min((dtype for dtype in point.op.dtypes if dtype in FLOATS), key=rounding.eps)
    spec = replace(point.spec, dtype=dtype)
    inputs = {name: x.astype(DTYPES[spec.inputs.dtypes[name]].numpy) for name, x in point.inputs.items()}
    return moved(replace(point, spec=spec), inputs)


def _expected_gradients(
    point: Point, wrt: tuple[str, ...], cotangents: Mapping[str, Array] | None
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the op's own gradients, and the rounding error that any others may have, in units of ``eps``."""
    leaves: dict[Key, Array] = {("inputs", name): point.inputs[name] for name in point.spec.inputs.differentiable}
    leaves |= {("cotangents", name): dy for name, dy in (cotangents or {}).items()}

    def gradients(moved: Mapping[Key, Array]) -> dict[str, Array]:
        inputs = {name: moved.get(("inputs", name), x) for name, x in point.inputs.items()}
        dys = {name: moved["cotangents", name] for name in cotangents or {}} or None
        _, dxs = vjp(replace(point, inputs=inputs), wrt, dys, batched=False, outputs=False).run()
        return {name: np.zeros_like(inputs[name]) if isinstance(dx, Absent) else dx for name, dx in dxs.items()}

    elementwise = point.op.batching == "elementwise"
    largest = max((float(np.abs(dy).max(initial=0)) for dy in (cotangents or {}).values()), default=1.0)
    rng = np.random.default_rng(0)
    found = rounding.measured(
        lambda sets: list(map(gradients, sets)), leaves, rng, elementwise=elementwise, ones=lambda name: largest
    )
    return gradients(leaves), found.units


@dataclass(frozen=True)
class _GradientComparison:
    """A gradient to verify, the expected gradient, and how far the two may differ."""

    place: Place
    theirs: Array
    expected: Array
    bar: Array

    def compare(self, part: Any = ..., x: Array | None = None) -> Comparison:
        """Compare a part of the gradients."""
        comparison = Comparison(self.place)
        comparison.add(self.theirs[part], self.expected[part], self.bar[part], x=x)
        return comparison

    def blocks(self) -> list[dict[str, Any]]:
        """Return the verdicts on up to ``BLOCKS`` ranges of the leading axis, which show a wrong tile of a kernel."""
        rows = len(self.theirs) if self.theirs.ndim else 0
        step = max(1, math.ceil(rows / BLOCKS))
        ranges = [(start, min(start + step, rows)) for start in range(0, rows, step)]
        return [_block(start, stop, self.compare(slice(start, stop))) for start, stop in ranges]


def _block(start: int, stop: int, comparison: Comparison) -> dict[str, Any]:
    ulps = 0.0 if comparison.worst is None else comparison.worst.ulps
    return {"start": start, "stop": stop, "verdict": comparison.verdict, "wrong": comparison.wrong, "ulps": ulps}


def _compare(place: Place, theirs: Array, ours: Array, units: Array, tolerances: Tolerances) -> _GradientComparison:
    expected, high = np.asarray(ours, np.float64), DTYPES[place.dtype].high
    with np.errstate(invalid="ignore"):
        slack = tolerances.absolute + tolerances.relative * np.abs(np.nan_to_num(expected))
        # Values beyond the range of their dtype are correctly infinite in it.
        expected = np.where(np.abs(expected) >= high, np.copysign(np.inf, expected), expected)
    bar = rounding.eps(place.dtype) * units + rounding.tiny(place.dtype) + slack
    return _GradientComparison(place, theirs, expected, bar)


def _document(gradient: _GradientComparison, wide: Point) -> dict[str, Any]:
    name = str(gradient.place.input)
    comparison = gradient.compare(x=np.asarray(wide.inputs[name], np.float64))
    finding = comparison.finding(f"your d{name}", f"op {wide.op.name} in {wide.spec.dtype}")
    return {
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "elements": comparison.points,
        "wrong": comparison.wrong,
        "worst": None if comparison.worst is None else _worst(comparison.worst),
        "blocks": gradient.blocks(),
    }


def _worst(element: Element) -> dict[str, Any]:
    names = {"analytic": "yours", "numeric": "expected"}
    return {names.get(key, key): value for key, value in element.document().items()}
