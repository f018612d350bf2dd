"""Right but numerically hard ops, one module for each kind; ``HARD`` holds all by name."""

from tests.gradcheck.hard import cancellation, linear_algebra, oscillation, special, spectra
from tests.gradcheck.hardness import Hard, collected

MODULES = (oscillation, cancellation, linear_algebra, spectra, special)

HARD: dict[str, Hard] = collected(*(hard for module in MODULES for hard in module.OPS.values()))
