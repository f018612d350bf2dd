"""Mutation: the op's functions leave inputs, cotangents and vectors as they are.

NumPy functions of an op, and kernels in C++, may write into the memory of their arguments. Others read it afterwards.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.autodiff.derivatives import values_up_to
from app.gradcheck.target import Target
from app.runtime import modes
from app.runtime.op_errors import op_errors
from app.tensors.casting import aligned
from ops import Array
from pullback.gradcheck.verdict import Finding, Subject

NAME = "mutation"


def check(target: Target) -> Iterator[Finding]:
    """Compare all leaves before and after an evaluation of everything, bit by bit, in mode graph."""
    subject, points = Subject(NAME, dtype=target.widest), 0
    for sample in target.subsamples:
        evaluation = values_up_to(sample.last, sample.point, sample.cotangents, sample.vectors)
        # TensorFlow copies memory that is not aligned, and the copy would hide the change.
        leaves = [_aligned(leaf) for leaf in evaluation.leaves]
        with op_errors(target.op.name):
            modes.run(evaluation.program, "graph", leaves, target.options.device)
        for name, leaf, before in zip(evaluation.program.leaf_names, leaves, evaluation.leaves, strict=True):
            points += leaf.size
            changed = _as_bytes(leaf) != _as_bytes(before)
            if changed.any():
                at = int(np.argmax(changed.any(axis=-1)))
                index = [int(i) for i in np.unravel_index(at, leaf.shape)]
                was, now = (float(x.ravel()[at]) for x in (before, leaf))
                where = replace(subject, input=name if name in sample.point.inputs else None)
                sentence = f"a function of the op writes into {name}{index}, which was {was:g} and is {now:g}"
                yield Finding(where, "fail", f"{sentence}; copy an array before you change it", points)
                return
    yield Finding(subject, "pass", "inputs, cotangents and vectors keep their bits", points)


def _aligned(leaf: Array) -> Array:
    copy: Array = aligned(leaf.nbytes).view(leaf.dtype).reshape(leaf.shape)
    copy[...] = leaf
    return copy


def _as_bytes(leaf: Array) -> Array:
    """Return the bytes of each number, in one row each."""
    return np.ascontiguousarray(leaf).reshape(-1, 1).view(np.uint8)
