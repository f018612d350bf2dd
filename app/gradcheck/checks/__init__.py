"""The checks, one module each; ``docs/gradient-checks.md`` lists what each catches."""

from collections.abc import Callable, Iterator, Mapping

from app.gradcheck.checks import (
    adjoint,
    batching,
    contract,
    derivative,
    determinism,
    dtypes,
    finite,
    linearity,
    modes,
    retrace,
    second,
    symmetry,
    value,
)
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding

Check = Callable[[Target], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    module.NAME: module.check
    for module in (
        contract,
        determinism,
        retrace,
        batching,
        value,
        derivative,
        second,
        linearity,
        adjoint,
        symmetry,
        modes,
        dtypes,
        finite,
    )
}
FOUNDATIONS = (contract.NAME, batching.NAME)
"""Checks that the others rely on: always run first, and reported if requested or failed."""
SECOND_ORDER = (second.NAME, symmetry.NAME)
"""Checks that are left out if only the first order is requested."""
OF_ATTRIBUTES = (contract.NAME, value.NAME, derivative.NAME, second.NAME, linearity.NAME)
"""Checks that run for attributes that no example has, in the widest dtype and mode graph."""
