"""Results with complex numbers in place of the pairs that ops of complex numbers compute with.

Jacobians and Hessians keep the pairs: they are those of the real function of pairs, which exist for every op. The
Jacobian of an op that claims to be holomorphic is complex, ∂w/∂z = ∂re w/∂re z + i ∂im w/∂re z.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.autodiff.derivatives import Absent, Derivatives
from app.autodiff.matrices import Blocks
from app.autodiff.point import Side, Spec
from ops import Array


def numbers_in(side: Side, named: Mapping[str, Any]) -> Derivatives:
    """Return the results of slots, or derivatives like them, as their numbers."""
    return {name: x if isinstance(x, Absent) else side.numbers(name, x) for name, x in named.items()}


def shown(operation: str, spec: Spec, ranks: Mapping[str, int], result: Any) -> Any:
    """Return the result of an operation with complex numbers; the inputs have these ranks, pairs included."""
    inputs, outputs = spec.inputs, spec.outputs
    match operation:
        case "forward" | "jvp":
            return numbers_in(outputs, result)
        case "hvp":
            return numbers_in(inputs, result)
        case "vjp":
            ys, gradients = result
            return numbers_in(outputs, ys), numbers_in(inputs, gradients)
        case "gradients":
            ys, levels = result
            return numbers_in(outputs, ys), [numbers_in(inputs, level) for level in levels]
        case "jacobian" if spec.op.holomorphic:
            return _complex_blocks(spec, ranks, result)
        case _:
            return result


def _complex_blocks(spec: Spec, ranks: Mapping[str, int], blocks: Blocks) -> Blocks:
    inputs, outputs = spec.inputs, spec.outputs
    return {
        y: {
            x: block
            if isinstance(block, Absent) or y not in outputs.pairs or x not in inputs.pairs
            else _complex_block(block, ranks[x])
            for x, block in row.items()
        }
        for y, row in blocks.items()
    }


def _complex_block(block: Array, columns: int) -> Array:
    """Return the complex derivative in a block whose last axes, so many, are those of the input."""
    of_real = np.moveaxis(block[..., 0], -columns, -1)
    found = np.empty(of_real.shape[:-1], np.result_type(block.dtype, np.complex64))
    found.real, found.imag = of_real[..., 0], of_real[..., 1]
    return found
