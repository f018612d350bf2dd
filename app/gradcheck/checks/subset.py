"""Subset: the gradient of one input alone is that part of the gradient of all inputs."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.autodiff.absent import Absent
from app.autodiff.derivatives import vjp
from app.gradcheck.reproduce import calls
from app.gradcheck.target import Target
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

NAME = "subset"


def check(target: Target) -> Iterator[Finding]:
    """Compare the gradient of each input, requested alone, with that of the whole, in mode graph."""
    subject, names = Subject(NAME, 1, dtype=target.widest), list(target.samples[0].vectors)
    if len(names) == 1:
        yield Finding(subject, "skipped", "only one input is differentiable")
        return
    for name in names:
        comparison = Comparison(replace(subject, input=name), target.options.tolerances)
        for sample in target.nonsingular:
            target.checkpoint()
            key, cotangents = ("gradients", name), sample.cotangents
            _, found = vjp(sample.point, (name,), cotangents, batched=False, outputs=False).run()
            whole = sample.values[key]
            alone = np.zeros_like(whole) if isinstance(dx := found[name], Absent) else dx
            # Both values round.
            bar, index = 2 * sample.error_bound(key, target.widest), sample.index(name)
            some = calls(sample, key, explanation=f'request vjp with "wrt": ["{name}"] at the checked point')
            comparison.add(alone, whole, bar, index=index, calls=some)
        yield comparison.finding(f"d{name} alone", f"d{name} of all inputs")
