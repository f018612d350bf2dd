"""Somebody else's gradients beside the op's own in the widest dtype, within the rounding of the dtype they came in."""

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
from app.runtime.eager import Key
from app.tensors.dtypes import DTYPES
from ops import FLOATS, Array

BLOCKS = 32


@dataclass(frozen=True)
class Tolerances:
    """What comparisons are widened by, on top of rounding: a number, and a part of the number that is expected."""

    absolute: float = 0.0
    relative: float = 0.0


def verify(
    point: Point, cotangents: Mapping[str, Array] | None, gradients: Mapping[str, Array], tolerances: Tolerances
) -> dict[str, Any]:
    """Return the verdict on gradients with respect to some inputs, and on blocks of each along its leading axis.

    Everything is in the point's dtype; the op answers in its widest one. Raises ``Unprocessable`` for another shape.
    """
    _check_shapes(point, gradients)
    wide = _widened(point)
    dys = None if cotangents is None else {name: _cast(wide, name, dy) for name, dy in cotangents.items()}
    expected, units = _expected(wide, tuple(gradients), dys)
    found: dict[str, dict[str, Any]] = {}
    for name, theirs in gradients.items():
        place = Place("verify", 1, input=name, dtype=point.spec.dtype)
        found[name] = _document(_compared(place, theirs, expected[name], units[name], tolerances), wide)
    return {
        "op": point.op.name,
        "verdict": worst_verdict([one["verdict"] for one in found.values()]),
        "sentence": " ".join(one["sentence"] + "." for one in found.values()),
        "dtype": point.spec.dtype,
        "against": wide.spec.dtype,
        "gradients": found,
    }


def _check_shapes(point: Point, gradients: Mapping[str, Array]) -> None:
    for name, theirs in gradients.items():
        if theirs.shape != (shape := point.inputs[name].shape):
            message = f"the gradient of {name} has another shape than {name}"
            raise wrong(("gradients", name), message, expected=str(list(shape)), got=str(list(theirs.shape)))


def _widened(point: Point) -> Point:
    """Return the point in the op's widest dtype, where each of its numbers is exact."""
    dtype = min((dtype for dtype in point.op.dtypes if dtype in FLOATS), key=rounding.eps)
    spec = replace(point.spec, dtype=dtype)
    inputs = {name: x.astype(DTYPES[spec.inputs.dtypes[name]].numpy) for name, x in point.inputs.items()}
    return moved(replace(point, spec=spec), inputs)


def _cast(wide: Point, output: str, dy: Array) -> Array:
    return dy.astype(DTYPES[wide.spec.outputs.dtypes[output]].numpy)


def _expected(
    point: Point, wrt: tuple[str, ...], cotangents: Mapping[str, Array] | None
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the op's own gradients, and by how many units of rounding anybody's may be off."""
    leaves: dict[Key, Array] = {("inputs", name): point.inputs[name] for name in point.spec.inputs.live}
    leaves |= {("cotangents", name): dy for name, dy in (cotangents or {}).items()}

    def ask(moved: Mapping[Key, Array]) -> dict[str, Array]:
        inputs = {name: moved.get(("inputs", name), x) for name, x in point.inputs.items()}
        dys = {name: moved["cotangents", name] for name in cotangents or {}} or None
        _, found = vjp(replace(point, inputs=inputs), wrt, dys, batched=False, outputs=False).run()
        return {name: np.zeros_like(inputs[name]) if isinstance(dx, Absent) else dx for name, dx in found.items()}

    elementwise = point.op.batching == "elementwise"
    largest = max((float(np.abs(dy).max(initial=0)) for dy in (cotangents or {}).values()), default=1.0)
    rng = np.random.default_rng(0)
    return ask(leaves), rounding.units(ask, leaves, rng, elementwise=elementwise, ones=lambda name: largest)


@dataclass(frozen=True)
class _Compared:
    """A gradient beside the one that is expected, and how far they may be apart."""

    place: Place
    theirs: Array
    expected: Array
    bar: Array

    def comparison(self, part: Any = ..., x: Array | None = None) -> Comparison:
        """Return the comparison of a part."""
        comparison = Comparison(self.place)
        comparison.add(self.theirs[part], self.expected[part], self.bar[part], x=x)
        return comparison

    def blocks(self) -> list[dict[str, Any]]:
        """Return the verdicts on some dozen ranges of the leading axis: a tile of a kernel that is wrong shows."""
        rows = len(self.theirs) if self.theirs.ndim else 0
        step = max(1, math.ceil(rows / BLOCKS))
        found = [(start, min(start + step, rows)) for start in range(0, rows, step)]
        return [_block(start, stop, self.comparison(slice(start, stop))) for start, stop in found]


def _block(start: int, stop: int, comparison: Comparison) -> dict[str, Any]:
    ulps = 0.0 if comparison.worst is None else comparison.worst.ulps
    return {"start": start, "stop": stop, "verdict": comparison.verdict, "wrong": comparison.wrong, "ulps": ulps}


def _compared(place: Place, theirs: Array, ours: Array, units: Array, tolerances: Tolerances) -> _Compared:
    expected, high = np.asarray(ours, np.float64), DTYPES[place.dtype].high
    with np.errstate(invalid="ignore"):
        slack = tolerances.absolute + tolerances.relative * np.abs(np.nan_to_num(expected))
        # What their dtype cannot hold is infinite in it, and rightly so.
        expected = np.where(np.abs(expected) >= high, np.copysign(np.inf, expected), expected)
    bar = rounding.eps(place.dtype) * units + rounding.tiny(place.dtype) + slack
    return _Compared(place, theirs, expected, bar)


def _document(compared: _Compared, wide: Point) -> dict[str, Any]:
    name = str(compared.place.input)
    comparison = compared.comparison(x=np.asarray(wide.inputs[name], np.float64))
    finding = comparison.finding(f"your d{name}", f"op {wide.op.name} in {wide.spec.dtype}")
    return {
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "elements": comparison.points,
        "wrong": comparison.wrong,
        "worst": None if comparison.worst is None else _worst(comparison.worst),
        "blocks": compared.blocks(),
    }


def _worst(element: Element) -> dict[str, Any]:
    names = {"analytic": "yours", "numeric": "expected"}
    return {names.get(key, key): value for key, value in element.document().items()}
