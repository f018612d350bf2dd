"""The corpus of wrong ops: each has one planted fault, which the checker must find."""

from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong import (
    aliasing,
    attributes,
    bands,
    boundaries,
    branches,
    broadcasting,
    calls,
    combinations,
    dtypes,
    edges,
    first_order,
    half,
    hidden,
    mixed,
    rows,
    sampled,
    sizes,
    special_seconds,
    state,
    ties,
    transforms,
    units,
    variants,
)

MODULES = (
    attributes,
    bands,
    ties,
    special_seconds,
    state,
    mixed,
    rows,
    sampled,
    aliasing,
    broadcasting,
    dtypes,
    edges,
    first_order,
    boundaries,
    branches,
    sizes,
    calls,
    combinations,
    units,
    half,
    hidden,
    transforms,
    variants,
)


def _collect() -> dict[str, Planted]:
    collected: dict[str, Planted] = {}
    names: set[str] = set()
    for module in MODULES:
        for words, planted in module.OPS.items():
            if words in collected or planted.op.name in names:
                raise ValueError(f"{module.__name__}: {words!r} or its name {planted.op.name!r} appears twice")
            collected[words] = planted
            names.add(planted.op.name)
    return collected


WRONG = _collect()
"""Every planted fault, by its description."""
