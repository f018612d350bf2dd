"""The checks, one module each: what each catches stands on its page."""

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
    second,
    symmetry,
)
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding

Check = Callable[[Target], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    module.NAME: module.check
    for module in (
        contract,
        batching,
        derivative,
        second,
        linearity,
        adjoint,
        symmetry,
        modes,
        dtypes,
        finite,
        determinism,
    )
}
FOUNDATIONS = (contract.NAME, batching.NAME)
"""What the others build upon: done first and always, told where it was asked for or fails."""
SECOND_ORDER = (second.NAME, symmetry.NAME)
"""What is left out where only the first order is asked for."""
