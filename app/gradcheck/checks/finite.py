"""Finiteness: no NaN and no infinity in a gradient where the value is finite, at the extremes of each dtype.

The inputs of an elementwise op are 0, ±tiny, ±eps, ±1, ±√max/2 and ±max/4. Other ops multiply them, so theirs end at
±⁴√max, in one entry and in all entries at once. Declared poles, points that the op calls singular, and points where the
claim itself is not finite are excluded. A derivative that is not finite is wrong if the widest dtype, the claim or the
numeric derivative shows that it should be finite, within the domain that the input declares. In a graph of ops, a
cotangent may overflow between two right nodes: see ``_overflows_between_nodes``.

If forward tests for NaN, it is tried too. Where the value is finite all the same, it does not depend on these numbers:
their first derivative is 0, and any other finite. Infinity is not tried, because TensorFlow's own ``reduce_logsumexp``
tests for it, and the derivatives of what it hides may be 0·∞.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from app.autodiff.derivatives import values_up_to
from app.autodiff.derived import DerivedOp
from app.autodiff.point import Arrays
from app.errors import OpFailed, Unprocessable
from app.gradcheck import rounding
from app.gradcheck.checks import derivative, second
from app.gradcheck.checks.higher import SECOND, derived_at
from app.gradcheck.claims import claim_function, claim_of
from app.gradcheck.comparison import slope_at
from app.gradcheck.outside import noted
from app.gradcheck.points import size_of_numbers
from app.gradcheck.reproduce import Call
from app.gradcheck.rows import kernels
from app.gradcheck.sample import Sample, sample_at
from app.gradcheck.target import Target
from app.runtime.kernels import CONTROL, KERNELS, TESTS
from app.runtime.modes import Key
from app.tensors.dtypes import DTYPES
from ops import Array, Derivative, Formula, Tensor
from pullback.gradcheck import floats
from pullback.gradcheck.number_comparison import NEAR_OVERFLOW
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Finding, Subject, worst_of

# The most numbers of all results inside a graph, if each were as large as the largest leaf.
MOST_NUMBERS = 1 << 22
NAME = "finite"
VALUES = {1: ("gradients",), 2: ("products", "slots")}
# Derivatives nearer to a pole than this, as a fraction of its size, need not be finite.
POLE_DISTANCE = 1e-3
# How much smaller the directions are in which a derivative does not overflow between two nodes.
SMALLER = 2.0**-6


def first_nan(sample: Sample) -> str:
    """Return the kernel, "" if none is found.

    Loops, branches and functions count as a whole, so the kernels inside them are not found. Nor are those of a graph
    that is large, or reads from outside.
    """
    with suppress(OpFailed, Unprocessable, tf.errors.OpError, TypeError, ValueError):
        return _first_nan(sample)
    return ""


def _first_nan(sample: Sample) -> str:
    leaves = values_up_to(sample.last, sample.point, sample.cotangents, sample.vectors).leaves
    function, graph = sample.trace.function, sample.trace.graph
    nodes: list[Any] = [node for node in graph.get_operations() if any(map(_has_numbers, node.outputs))]
    size = len(nodes) * max((leaf.size for leaf in leaves), default=1)
    if function.captured_inputs or size > MOST_NUMBERS:
        return ""
    fetched = [[[x for x in side if _has_numbers(x)] for side in (node.inputs, node.outputs)] for node in nodes]
    fed = {x.name: leaf for x, leaf in zip(function.inputs, leaves, strict=True)}
    with tf.compat.v1.Session(graph=graph) as session:
        found = session.run(fetched, fed)
    for node, (inputs, outputs) in zip(nodes, found, strict=True):
        if _has_nan(outputs) and not _has_nan(inputs):
            return str(node.type) if node.type in KERNELS.keys() - CONTROL else ""
    return ""


def _has_numbers(x: Tensor) -> bool:
    return x.dtype.is_floating or x.dtype.is_complex


def _has_nan(values: Any) -> bool:
    return any(np.isnan(value).any() for value in values)


def check(target: Target) -> Iterator[Finding]:
    """Check each order in every dtype."""
    for dtype in target.dtypes:
        samples = list(_samples(target, dtype))
        yield from noted(target, (_finding(target, samples, order, dtype) for order in target.orders))
        yield from noted(target, _higher(target, dtype))


def _higher(target: Target, dtype: str) -> Iterator[Finding]:
    """Check each order above the second as the second one of a derived op, whose cotangents are extreme too."""
    for order in target.options.orders:
        if order > SECOND and not target.why_no_second:
            derived = derived_at(target, target.samples[-1], order)
            found = _finding(derived, list(_samples(derived, dtype)), SECOND, dtype)
            yield replace(found, subject=replace(found.subject, order=order))


def _finding(target: Target, samples: list[Sample], order: int, dtype: str) -> Finding:
    subject, points, wrong, unproven = Subject(NAME, order, dtype=dtype), 0, 0, 0
    first: tuple[Sample, Key, int] | None = None
    for sample in samples:
        target.checkpoint()
        expected = _expected_finite(sample, order)
        for key, value in sample.values.items():
            if key[0] not in VALUES[order]:
                continue
            bad = ~np.isfinite(np.asarray(value, np.float64)) & expected
            if key[0] == "gradients":
                bad |= ~np.isfinite(np.asarray(sample.point.inputs[key[1]], np.float64)) & expected & (value != 0)
            points += int(np.broadcast_to(expected, value.shape).sum())
            if not bad.any():
                continue
            at = int(np.argmax(np.ravel(bad)))
            if not _is_wrong(target, sample, order, key, at):
                unproven += int(bad.sum())
                continue
            wrong += int(bad.sum())
            first = first or (sample, key, at)
    if first is not None:
        return _failure(subject, first, wrong, points)
    if not points:
        return Finding(subject, "skipped", "nothing to check")
    sentence = f"finite at all {points} extreme points where the value is finite"
    if unproven:
        sentence = f"finite at {points - unproven} of {points} extreme points where the value is finite; at the others,"
        sentence += " the derivative overflows or cannot be determined, or the point is outside of the domain"
    return Finding(subject, "pass", sentence, points)


def _failure(subject: Subject, first: tuple[Sample, Key, int], wrong: int, points: int) -> Finding:
    sample, key, at = first
    what, name = key
    subject = replace(subject, output=name) if what == "slots" else replace(subject, input=name)
    derivative = {"gradients": f"d{name}", "products": f"d⟨vjp, v⟩/d{name}", "slots": f"d⟨vjp, v⟩/dd{name}"}[str(what)]
    x = float(np.ravel(sample.point.inputs[name])[at]) if name in sample.point.inputs else None
    analytic, index = float(np.ravel(sample.values[key])[at]), sample.index(name)(at)
    worst = worst_of(index, x, analytic, float("nan"), error_bar=float("inf"), dtype=subject.dtype)
    at_x = "" if x is None else f" at {name} = {x:.6g}"
    sentence = f"{derivative} is {analytic:g}{at_x}, where the value is finite; {wrong} of {points} numbers "
    if _has_hidden(sample):
        sentence += "wrong; forward tests for NaN, and does not depend on it, so derivatives are finite, and 0 at NaN"
    else:
        sentence += "not finite; if the derivative is infinite by nature, declare the pole (Input.poles or Op.singular)"
    if kernel := first_nan(sample):
        sentence += f"; the first NaN comes from TensorFlow's kernel {kernel}"
    reproduction = Call(sample.point, key, sample.cotangents, sample.vectors, at).reproduction(index, analytic)
    return Finding(subject, "fail", sentence, points, worst=worst, reproduction=reproduction)


def _is_wrong(target: Target, sample: Sample, order: int, key: Key, at: int) -> bool:
    """Return whether a derivative that is not finite is proven to be finite.

    The widest dtype proves it, or the formula of the claim, which is finite there, or the numeric derivative; at a
    kink, the derivatives on both sides are finite.
    """
    for slot in sample.point.op.inputs:
        (low, high), x = slot.domain, np.asarray(sample.point.inputs[slot.name], np.float64)
        if slot.has_domain and not (((x >= low) & (x <= high)) | ~np.isfinite(x)).all():
            return False
    if _has_hidden(sample):
        return order == 1 and isinstance(claim_of(sample, order), Derivative)
    high = floats.largest(sample.point.spec.dtype)
    if sample.point.spec.dtype != target.widest:
        true = float(np.ravel(target.widen(sample).values[key])[at])
        return bool(np.isfinite(true)) and abs(true) <= high and not _overflows_between_nodes(sample, key, at)
    if isinstance(claim_of(sample, order), Formula) and key[0] != "slots":
        return True
    try:
        match key[0]:
            case "gradients":
                objective = derivative.objective(target, sample, sample.cotangents)
            case "products":
                objective = second.x_objective(target, sample)
            case _:
                objective = second.dy_objective(target, sample)
        slope = slope_at(target, sample, objective, key[1], at)
    except (OpFailed, Unprocessable):
        return False
    is_known = slope.status[0] in (Status.OK, Status.KINK)
    return bool(is_known and np.isfinite(slope.value[0]) and abs(slope.value[0]) < NEAR_OVERFLOW * high)


def _overflows_between_nodes(sample: Sample, key: Key, at: int) -> bool:
    """Return whether the derivative of a graph is finite in smaller directions, in which it is linear.

    Then a cotangent or a tangent between two nodes exceeds the largest number of the dtype, which no node can avoid.
    """
    if not sample.point.op.parts:
        return False
    cotangents, vectors = (
        {name: (x * SMALLER).astype(x.dtype) for name, x in named.items()}
        for named in (sample.cotangents, sample.vectors)
    )
    smaller = replace(sample, cotangents=cotangents, vectors=vectors)
    return bool(np.isfinite(np.ravel(smaller.values[key])[at]))


def _has_hidden(sample: Sample) -> bool:
    """Return whether an input is not finite, which forward then hides from the value."""
    return not all(np.isfinite(np.asarray(x, np.float64)).all() for x in sample.point.inputs.values())


def _expected_finite(sample: Sample, order: int) -> Array:
    """Return where a derivative must be finite: number by number for an elementwise op, else for the sample.

    That is where the outputs and the functions of the claims are finite, away from poles.
    """
    values = [y for (what, _), y in sample.values.items() if what == "outputs"]
    # The first claim of a derived op is the second one of its op, whose function takes other arguments.
    for of in range(1 + isinstance(sample.point.op, DerivedOp), order + 1):
        if not isinstance(claim_of(sample, of), Derivative):
            values += claim_function(sample, of)({}).values()
    with np.errstate(all="ignore"):
        finite = [np.isfinite(np.asarray(value, np.float64)) for value in values]
        for slot in sample.point.op.inputs:
            x = np.asarray(sample.point.inputs[slot.name], np.float64)
            size = size_of_numbers(sample.point.op, slot.name)
            finite += [np.abs(x - pole) > POLE_DISTANCE * max(size, abs(pole)) for pole in slot.poles]
    if sample.is_elementwise:
        return np.logical_and.reduce(finite)
    return np.asarray(all(bool(part.all()) for part in finite) and not sample.is_singular)


def _samples(target: Target, dtype: str) -> Iterator[Sample]:
    """Yield samples with extreme numbers in each differentiable input in turn, if the op accepts them."""
    base = target.in_dtype(target.samples[-1], dtype)
    if base is None:
        return
    hidden = () if kernels(base.point).isdisjoint(TESTS) else (np.nan,)
    for name in base.vectors:
        for inputs in _extreme_inputs(target, base.point.inputs, name, dtype, hidden):
            try:
                rng = np.random.default_rng(target.options.seed)
                sample = sample_at(target.bind(inputs, dtype), rng, last=target.last)
                _ = sample.values
            except (OpFailed, Unprocessable):
                # The op rejects the point, or raises there.
                continue
            yield sample


def _extreme_inputs(
    target: Target, inputs: Arrays, name: str, dtype: str, hidden: tuple[float, ...]
) -> Iterator[Arrays]:
    elementwise, high = target.batching == "elementwise", DTYPES[dtype].high
    largest = float(np.finfo(np.float64).max) if np.isinf(high) else high
    huge = [largest**0.5 / 2, largest / 4] if elementwise else [largest**0.25]
    sizes = np.array([0.0, rounding.tiny(dtype), rounding.eps(dtype), 1.0, *huge, *hidden])
    if elementwise:
        # A number that a mask hides from the value may still enter the gradient, as 0·∞: both bools are tried.
        count = 2 if any(x.dtype == np.bool_ for x in inputs.values()) else 1
        inputs = {
            name: np.array([False, True]) if x.dtype == np.bool_ else np.concatenate([np.ravel(x)[:1]] * count)
            for name, x in inputs.items()
        }
    for value in np.concatenate([sizes, -sizes]).astype(DTYPES[dtype].numpy):
        yield {**inputs, name: np.full_like(inputs[name], value)}
        if not elementwise:
            one = inputs[name].copy()
            one.reshape(-1)[:1] = value
            yield {**inputs, name: one}
