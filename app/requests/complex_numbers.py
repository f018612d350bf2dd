"""Results with complex numbers in place of the pairs that ops of complex numbers compute with.

Jacobians and Hessians keep the pairs: they are those of the real function of pairs, which exist for every op. The
Jacobian of an op that claims to be holomorphic is complex, ∂w/∂z = ∂re w/∂re z + i ∂im w/∂re z, and so is -i times the
derivative in the imaginary part.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.autodiff.absent import Absent
from app.autodiff.derivatives import Derivatives
from app.autodiff.matrices import Blocks
from app.autodiff.point import Side, Spec, as_numbers
from app.errors import Entry, OpFailed
from ops import Array, Op

# How far roundings may carry the derivatives in the two parts from each other, as a part of the largest number.
_TOLERANCE = {dtype: float(np.finfo(dtype).eps) ** 0.25 for dtype in ("float32", "float64")}


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
            else _complex_block(spec.op, (y, x), block, ranks[x])
            for x, block in row.items()
        }
        for y, row in blocks.items()
    }


def _complex_block(op: Op, names: tuple[str, str], block: Array, columns: int) -> Array:
    """Return the complex derivative in a block whose last axes, so many, are those of the input.

    Raises ``OpFailed`` where it depends on the direction: then the function is not holomorphic.
    """
    along_real, along_imag = (as_numbers(np.moveaxis(block[..., i], -columns, -1)) for i in range(2))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(along_imag - 1j * along_real)
        largest = np.max(np.abs(block), initial=0, where=np.isfinite(block))
        is_wrong = bool(np.any(difference > _TOLERANCE[block.dtype.name] * largest))
    if is_wrong:
        y, x = names
        message = f"op {op.name} declares holomorphic=True, and the derivative of {y} in {x} depends on the direction"
        expected, got = "∂w/∂(im z) = i ∂w/∂(re z) in all numbers", "others; leave out holomorphic=True"
        raise OpFailed(message, Entry((op.name, y), message, expected, got))
    return along_real
