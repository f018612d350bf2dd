"""Right but numerically hard ops, one module for each kind; ``HARD`` holds all by name."""

from tests.gradcheck.hard import (
    calls,
    cancellation,
    combinations,
    domains,
    edges,
    first_order,
    halves,
    indexing,
    kinks,
    layers,
    linear_algebra,
    narrow,
    oscillation,
    scales,
    sizes,
    special,
    spectra,
    staircases,
    structures,
    transforms,
    units,
)
from tests.gradcheck.hard.exact import Hard, collected

MODULES = (
    calls,
    cancellation,
    combinations,
    domains,
    edges,
    first_order,
    halves,
    indexing,
    kinks,
    layers,
    linear_algebra,
    narrow,
    oscillation,
    scales,
    sizes,
    special,
    spectra,
    staircases,
    structures,
    transforms,
    units,
)

HARD: dict[str, Hard] = collected(*(hard for module in MODULES for hard in module.OPS.values()))
