"""The checks, one module each, and ``quick_look``, which two of them use. The docs list what each catches.

Where a check compares numbers, ``Comparison`` of ``pullback.gradcheck.number_comparison`` decides; the rest decide by
themselves.
"""

from collections.abc import Callable, Iterator, Mapping

from app.gradcheck.checks import (
    adjoint,
    attributes,
    batching,
    contract,
    cost,
    declarations,
    derivative,
    determinism,
    directions,
    dtypes,
    finite,
    higher,
    linearity,
    modes,
    mutation,
    retrace,
    second,
    sizes,
    sparsity,
    subset,
    symmetry,
    value,
)
from app.gradcheck.target import Target
from pullback.gradcheck.verdict import Finding

Check = Callable[[Target], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    module.NAME: module.check
    for module in (
        contract,
        declarations,
        mutation,
        determinism,
        retrace,
        batching,
        value,
        derivative,
        second,
        higher,
        sizes,
        attributes,
        linearity,
        adjoint,
        symmetry,
        subset,
        sparsity,
        directions,
        modes,
        dtypes,
        finite,
        cost,
    )
}
FOUNDATIONS = (contract.NAME, mutation.NAME, batching.NAME)
"""Checks that the others rely on: always run first, and reported if requested or failed."""
HIGHER_ORDER = (higher.NAME,)
"""Checks that are left out unless an order above the second is requested."""
SECOND_ORDER = (second.NAME, symmetry.NAME, *HIGHER_ORDER)
"""Checks that are left out if only the first order is requested."""
OF_ATTRIBUTES = (contract.NAME, value.NAME, derivative.NAME, second.NAME, linearity.NAME)
"""Checks that run for attributes that no example has, in the widest dtype and mode graph."""
