"""Verify the gradients of another implementation against the op's own, within the rounding of their dtype."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.autodiff.derivatives import vjp
from app.autodiff.point import Point
from app.autodiff.widest import all_cotangents, in_widest
from app.errors import wrong
from app.gradcheck import rounding
from app.gradcheck.balance import Balanced
from app.gradcheck.sample import Sample
from app.tensors.dtypes import DTYPES
from ops import Array
from pullback.documents import written
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.numeric import NO_DIGITS
from pullback.gradcheck.verdict import Subject, worst_verdict

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
    wide = in_widest(point)
    # Where the request is wrong, making the evaluation raises.
    _ = vjp(wide, tuple(gradients), cotangents, batched=False, outputs=False)
    sample = _sample(wide, cotangents)
    documents: dict[str, dict[str, Any]] = {}
    for name, theirs in gradients.items():
        subject = Subject("verify", 1, input=name, dtype=point.spec.dtype)
        documents[name] = _document(subject, theirs, sample, tolerances=tolerances)
    return {
        "op": point.op.name,
        "verdict": worst_verdict([document["verdict"] for document in documents.values()]),
        "sentence": " ".join(document["sentence"] + "." for document in documents.values()),
        "dtype": point.op.shown_dtype(point.spec.dtype),
        "against": point.op.shown_dtype(wide.spec.dtype),
        "gradients": documents,
    }


def _sample(point: Point, cotangents: Mapping[str, Array] | None) -> Sample:
    """Return the sample at a point in the widest dtype, for cotangents that are 1 if none are given, else 0."""
    vectors = {name: np.ones_like(point.inputs[name]) for name in point.spec.inputs.differentiable}
    return Sample(point, all_cotangents(point, cotangents), vectors, last="gradients")


def _document(subject: Subject, theirs: Array, sample: Sample, *, tolerances: Tolerances) -> dict[str, Any]:
    """Return the verdict on a gradient, which may be off by the rounding of its dtype and the tolerances.

    The blocks are up to ``BLOCKS`` ranges of the leading axis, which show a wrong tile of a kernel.
    """
    name, key = str(subject.input), ("gradients", str(subject.input))
    x = np.asarray(sample.point.inputs[name], np.float64)
    # The gradient of an input that is not differentiable is 0.
    expected = np.asarray(sample.values.get(key, np.zeros(x.shape)), np.float64)
    bar = sample.error_bound(key, subject.dtype) if key in sample.values else np.zeros(x.shape)
    high = DTYPES[subject.dtype].high
    with np.errstate(invalid="ignore"):
        # Values beyond the range of their dtype are correctly infinite in it.
        expected = np.where(np.abs(expected) >= high, np.copysign(np.inf, expected), expected)

    error = _error(theirs, expected, bar, sample, subject)
    # One number that cannot be judged leaves the verdict open.
    indices = [(theirs.shape, i) for i in np.ndindex(theirs.shape)] if np.isinf(error).any() else []

    def compare(part: Any = ..., **where: Any) -> Comparison:
        comparison = Comparison(subject, tolerances)
        comparison.add(theirs[part], expected[part], bar[part], error=error[part], **where)
        return comparison

    count = len(theirs) if theirs.ndim else 0
    step = max(1, math.ceil(count / BLOCKS))
    blocks: list[dict[str, Any]] = []
    for start in range(0, count, step):
        stop = min(start + step, count)
        block = compare(slice(start, stop))
        ulps = 0.0 if block.worst is None else block.worst.ulps
        blocks.append({"start": start, "stop": stop, "verdict": block.verdict, "wrong": block.wrong, "ulps": ulps})
    whole, spec = compare(x=x, indices=indices, are_needed=True), sample.point.spec
    finding = whole.finding(f"your d{name}", f"op {spec.op.name} in {spec.op.shown_dtype(spec.dtype)}")
    names, worst = {"analytic": "yours", "numeric": "expected"}, None
    if whole.worst is not None:
        worst = {names.get(key, key): value for key, value in written(whole.worst).items()}
    return {
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "elements": whole.points,
        "wrong": whole.wrong,
        "worst": worst,
        "blocks": blocks,
    }


def _error(theirs: Array, expected: Array, bar: Array, sample: Sample, subject: Subject) -> Array:
    """Return how far agreement shows each number; infinite where a far larger number hides that it may be wrong.

    The bar in a narrower dtype is that of each number. In the widest one, it is that of the largest.
    """
    key, dtype = ("gradients", str(subject.input)), subject.dtype
    if key not in sample.values or rounding.eps(dtype) > rounding.eps(sample.point.spec.dtype):
        return np.zeros(bar.shape)
    size = np.fmax(np.abs(np.asarray(theirs, np.float64)), np.abs(expected))
    is_hidden = (bar > NO_DIGITS * size) & (size > rounding.underflow(dtype)) & np.isfinite(size)
    if not is_hidden.any():
        return np.zeros(bar.shape)
    own = Balanced(sample.point, sample.cotangents, sample.vectors, last=sample.last).error_bound(key, dtype)
    is_near = np.abs(np.asarray(theirs, np.float64) - expected) <= own
    return np.where(is_hidden & ~is_near, np.inf, 0.0)
