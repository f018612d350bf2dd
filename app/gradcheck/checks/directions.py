"""Directions: vjp, jvp and hvp of many directions at once are those of one after the other."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.autodiff.absent import Absent
from app.autodiff.derivatives import Derivatives, hvp, jvp, vjp
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Arrays
from app.errors import OpFailed
from app.gradcheck import choices
from app.gradcheck.agreement import ORDERS
from app.gradcheck.reproduce import calls
from app.gradcheck.rows import stack
from app.gradcheck.sample import Sample, draw
from app.gradcheck.target import Target
from app.runtime.modes import Key
from ops import Mode
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Finding, Subject

NAME = "directions"
COUNT = 3
MODES: tuple[Mode, ...] = ("graph", "eager")
# The bounds are those of the sample's directions; others are up to four times as large, and both values round.
RATIO = 8
OPERATIONS = {"gradients": "vjp", "slots": "jvp", "products": "hvp"}


def check(target: Target) -> Iterator[Finding]:
    """Compare a few directions at one point, in the modes that can loop over them in different ways."""
    subject = Subject(NAME, dtype=target.widest)
    if dict(target.attrs) not in choices.of_examples(target.op)[:1] and target.inputs is None:
        yield Finding(subject, "skipped", "checked with the attributes of the first example")
        return
    samples = [sample for sample in target.nonsingular if any(x.size for x in sample.vectors.values())]
    if not samples:
        yield Finding(subject, "skipped", "no point has numbers")
        return
    for mode in MODES:
        if mode in target.modes or mode == "graph":
            yield from _findings(target, samples[-1], mode)


def _findings(target: Target, in_graph: Sample, mode: Mode) -> Iterator[Finding]:
    subject = Subject(NAME, mode=mode, dtype=target.widest)
    rng, sample = target.rng(NAME), in_graph.in_mode(mode, target.options.device)
    cotangents, vectors = (
        [{name: draw(rng, x.shape).astype(x.dtype) for name, x in named.items()} for _ in range(COUNT)]
        for named in (sample.cotangents, sample.vectors)
    )
    singles = [
        (replace(sample, cotangents=dys), replace(sample, vectors=tangents))
        for dys, tangents in zip(cotangents, vectors, strict=True)
    ]
    for kind, evaluation in _many(target, sample, stack(cotangents), stack(vectors)).items():
        target.checkpoint()
        where = replace(subject, order=ORDERS[kind])
        comparison = Comparison(where, target.options.tolerances)
        try:
            found = evaluation.run()
        except OpFailed as error:
            # TensorFlow cannot vectorise every kernel. The author has made no mistake.
            yield Finding(where, "skipped", f"{OPERATIONS[kind]} of {COUNT} directions at once fails: {error.located}")
            continue
        for name, bound in in_graph.error_bounds(kind, target.widest).items():
            key: Key = kind, name
            each = [one if kind == "gradients" else other for one, other in singles]
            expected = np.stack([single.values[key] for single in each])
            value = np.zeros_like(expected) if isinstance(rows := found[name], Absent) else rows
            # Where the sample's own number is not finite, its bound says nothing.
            is_known = np.broadcast_to(np.isfinite(np.asarray(in_graph.values[key], np.float64)), expected.shape)
            status = np.where(is_known, Status.OK, Status.NOT_FINITE)
            some = calls(sample, key, explanation=f'request {OPERATIONS[kind]} with "batched": true')
            comparison.add(value, expected, RATIO * bound, status=status, key=key, calls=some)
        yield comparison.finding(f"{OPERATIONS[kind]} of {COUNT} directions at once", "that of one after the other")


def _many(target: Target, sample: Sample, cotangents: Arrays, vectors: Arrays) -> dict[str, Evaluation[Derivatives]]:
    """Return the evaluations of many directions, by kind of value; without those of orders that are not checked."""
    point, inputs = sample.point, tuple(sample.vectors)
    found = {"gradients": vjp(point, inputs, cotangents, batched=True, outputs=False).then(lambda results: results[1])}
    if target.last == "products":
        if sample.claim.linear:
            found["slots"] = jvp(point, vectors, batched=True)
        found["products"] = hvp(point, inputs, sample.cotangents, vectors, batched=True)
    return found
