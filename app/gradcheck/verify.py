"""Verify the gradients of another implementation against the op's own, within the rounding of their dtype."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import Absent, vjp
from app.autodiff.point import Point
from app.errors import wrong
from app.gradcheck import rounding
from app.gradcheck.verdict import Comparison, Place, Tolerances, worst_verdict
from app.runtime.modes import Key
from app.tensors.dtypes import DTYPES
from ops import FLOATS, Array

BLOCKS = 32


def verify(
    point: Point, cotangents: Mapping[str, Array] | None, gradients: Mapping[str, Array], tolerances: Tolerances
) -> dict[str, Any]:
    """Return the verdict on gradients with respect to some inputs, and on blocks of each along its leading axis.

    All arrays are in the point's dtype; the op runs in its widest one. Raises ``Unprocessable`` if a gradient does not
    have the shape of its input.
    """
    for name, theirs in gradients.items():
        if theirs.shape != (shape := point.inputs[name].shape):
            message = f"shape mismatch in the gradient of {name}"
            raise wrong(("gradients", name), message, expected=str(list(shape)), got=str(list(theirs.shape)))
    # The numbers of the point are exact in the op's widest dtype.
    widest = min((dtype for dtype in point.op.dtypes if dtype in FLOATS), key=rounding.eps)
    spec, dys = replace(point.spec, dtype=widest), None
    inputs = {name: x.astype(DTYPES[spec.inputs.dtypes[name]].numpy) for name, x in point.inputs.items()}
    wide = moved(replace(point, spec=spec), inputs)
    if cotangents is not None:
        dtypes = wide.spec.outputs.dtypes
        dys = {name: dy.astype(DTYPES[dtypes[name]].numpy) for name, dy in cotangents.items()}
    expected, bounds = _expected_gradients(wide, tuple(gradients), dys)
    documents: dict[str, dict[str, Any]] = {}
    for name, theirs in gradients.items():
        place = Place("verify", 1, input=name, dtype=point.spec.dtype)
        bar = rounding.eps(place.dtype) * bounds[name] + rounding.tiny(place.dtype)
        documents[name] = _document(place, theirs, expected[name], bar, wide, tolerances=tolerances)
    return {
        "op": point.op.name,
        "verdict": worst_verdict([document["verdict"] for document in documents.values()]),
        "sentence": " ".join(document["sentence"] + "." for document in documents.values()),
        "dtype": point.spec.dtype,
        "against": wide.spec.dtype,
        "gradients": documents,
    }


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

    elementwise = point.spec.batching == "elementwise"
    largest = max((float(np.abs(dy).max(initial=0)) for dy in (cotangents or {}).values()), default=1.0)
    rng = np.random.default_rng(0)
    measured = rounding.measure(
        lambda sets: list(map(gradients, sets)), leaves, rng, elementwise=elementwise, ones=lambda name: largest
    )
    return {name: np.asarray(dx, np.float64) for name, dx in gradients(leaves).items()}, measured.bounds


def _document(
    place: Place, theirs: Array, expected: Array, bar: Array, wide: Point, *, tolerances: Tolerances
) -> dict[str, Any]:
    """Return the verdict on a gradient that may be off by ``bar`` and the tolerances.

    The blocks are up to ``BLOCKS`` ranges of the leading axis, which show a wrong tile of a kernel.
    """
    high = DTYPES[place.dtype].high
    with np.errstate(invalid="ignore"):
        # Values beyond the range of their dtype are correctly infinite in it.
        expected = np.where(np.abs(expected) >= high, np.copysign(np.inf, expected), expected)

    def compare(part: Any = ..., x: Array | None = None) -> Comparison:
        comparison = Comparison(place, tolerances)
        comparison.add(theirs[part], expected[part], bar[part], x=x)
        return comparison

    count = len(theirs) if theirs.ndim else 0
    step = max(1, math.ceil(count / BLOCKS))
    blocks: list[dict[str, Any]] = []
    for start in range(0, count, step):
        stop = min(start + step, count)
        block = compare(slice(start, stop))
        ulps = 0.0 if block.worst is None else block.worst.ulps
        blocks.append({"start": start, "stop": stop, "verdict": block.verdict, "wrong": block.wrong, "ulps": ulps})
    whole = compare(x=np.asarray(wide.inputs[str(place.input)], np.float64))
    finding = whole.finding(f"your d{place.input}", f"op {wide.op.name} in {wide.spec.dtype}")
    names, worst = {"analytic": "yours", "numeric": "expected"}, None
    if whole.worst is not None:
        worst = {names.get(key, key): value for key, value in whole.worst.document().items()}
    return {
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "elements": whole.points,
        "wrong": whole.wrong,
        "worst": worst,
        "blocks": blocks,
    }
