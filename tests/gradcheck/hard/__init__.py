"""Right but numerically hard ops, one module for each kind; ``HARD`` holds all by name."""

from tests.gradcheck.hard import cancellation, oscillation
from tests.gradcheck.hardness import Hard, collected

MODULES = (oscillation, cancellation)

HARD: dict[str, Hard] = collected(*(hard for module in MODULES for hard in module.OPS.values()))
