"""Attributes: a quick look at combinations that no other check tries; what looks wrong is then compared with care."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from app.errors import Unprocessable
from app.gradcheck import choices
from app.gradcheck.checks import contract, quick_look
from app.gradcheck.reference import has_reference
from app.gradcheck.sample import Sample, sample_at
from app.gradcheck.subsample import Subsample
from app.gradcheck.target import Target
from ops import Mode
from pullback.gradcheck.verdict import Finding, Subject
from pullback.wording import counted

NAME = "attributes"


def check(target: Target) -> Iterator[Finding]:
    """Look at values and both orders with each further choice, up to the first that fails."""
    if why := _why_not(target):
        yield Finding(Subject(NAME, dtype=target.widest), "skipped", why)
        return
    # Most choices are evaluated a few times, for which a trace takes longer; but a loop takes seconds without one.
    mode: Mode = "eager" if "eager" in target.op.modes and not target.samples[-1].has_loop else "graph"
    alone, count = replace(target.options, dtypes=(target.widest,), modes=(mode,)), 0
    target = replace(target, options=alone, has_example=False)
    for attrs in choices.combinations(target.op, alone.seed, partial(_accepts, target)):
        target.checkpoint()
        if not _accepts(target, attrs):
            continue
        if faults := _faults(replace(target, attrs=attrs), mode):
            yield from (replace(fault, attrs=attrs) for fault in faults)
            return
        count += 1
    subject, others = Subject(NAME, mode=mode, dtype=target.widest), counted(count, "further choice")
    if count:
        yield Finding(
            subject, "pass", f"values and derivatives agree in a quick look with {others} of attributes", count
        )
    else:
        yield Finding(subject, "skipped", "other checks try all choices of attributes that the op accepts")


def _why_not(target: Target) -> str:
    if not target.op.attrs.model_fields:
        return "the op has no attributes"
    if target.are_attrs_given:
        return "the attributes are given"
    return "" if target.is_first else "checked once, with the attributes of the first example"


def _accepts(target: Target, attrs: Mapping[str, Any]) -> bool:
    try:
        return bool(replace(target, attrs=attrs).points)
    except Unprocessable:
        return False


def _faults(target: Target, mode: Mode) -> list[Finding]:
    """Return what fails at one point, or at the numbers of an elementwise op."""
    subject, point = Subject(NAME, mode=mode, dtype=target.widest), target.points[-1]
    sample = sample_at(point, target.rng(NAME), last=target.last).in_mode(mode, target.options.device)
    if failure := contract.failure(sample, max(target.orders, default=1)):
        order, error = failure
        return [Finding(replace(subject, order=order), "fail", error.located, 1)]
    if sample.is_singular or not has_reference(point):
        return []
    if sample.is_elementwise:
        sample = _finite(sample)
    findings = list[Finding]()
    for order in (0, *target.orders):
        if quick_look.how_wrong(target, sample, order) > 1:
            with_care = replace(sample, magnitudes=target.magnitudes)
            findings += quick_look.compare(target, replace(subject, order=order), with_care)
    return [finding for finding in findings if finding.verdict == "fail"]


def _finite(sample: Sample) -> Sample:
    """Return the numbers of an elementwise op at which all outputs are finite."""
    outputs = [np.asarray(y, np.float64).ravel() for y in sample.of_kind("outputs").values()]
    return Subsample.of(sample, np.flatnonzero(np.isfinite(outputs).all(axis=0)))
