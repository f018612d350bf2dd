"""Ops without float64: most functions compute in it too, where numeric derivatives have digits."""

from contextlib import suppress
from dataclasses import replace

from app.autodiff.binding import Decode
from app.errors import PullbackError
from app.gradcheck import choices
from app.gradcheck.graphs import has_narrow_floats
from app.gradcheck.options import Options
from app.gradcheck.reference import is_as_reference
from app.gradcheck.target import Target
from app.runtime.op_errors import expected_errors
from app.runtime.owned_cache import OwnedCache
from ops import FLOATS, Op

HALF, WIDER = frozenset({"float16", "bfloat16"}), ("float64", "float32")


def widened(op: Op, options: Options, decode: Decode) -> Op:
    """Return the op with a wider dtype, if it does not have float64 and its function computes in one.

    Then its own dtypes are compared with the wider one, as those of any other op. With half precision alone, that may
    be float32 too. An op that has float32 gets float64 only where its graph has no other floats, and its values are
    those of the reference, in all modes: else float64 would show what its author never promised.
    """
    if "float64" in op.dtypes or not set(op.dtypes) <= set(FLOATS):
        return op
    is_half = set(op.dtypes) <= HALF
    for dtype in WIDER if is_half else WIDER[:1]:
        wide = _with_dtype(op, dtype)
        targets = [Target(wide, attrs, options, decode) for attrs in choices.of_examples(op)]
        with suppress(PullbackError), expected_errors():
            if targets[0].samples[0].values and (is_half or all(map(_is_wide, targets))):
                return wide
    return op


def _is_wide(target: Target) -> bool:
    """Return whether the op computes in the widest dtype, in all modes and with no narrower number inside."""
    sample, device = target.samples[0], target.options.device
    if not (sample.values and is_as_reference(sample.point, sample.of_kind("outputs"))):
        return False
    return not has_narrow_floats(sample.trace) and all(sample.in_mode(mode, device).values for mode in target.modes)


_widened = OwnedCache[str, Op](64)


def _with_dtype(op: Op, dtype: str) -> Op:
    """Return the op with one more dtype: always the same one, because traces are kept by op."""
    return _widened.get(op, dtype) or _widened.keep(op, dtype, _widen(op, dtype))


def _widen(op: Op, dtype: str) -> Op:
    dtypes = (*op.dtypes, dtype)
    inputs = tuple(replace(slot, dtypes=dtypes) if slot.dtypes == op.dtypes else slot for slot in op.inputs)
    outputs = tuple(replace(slot, dtypes=dtypes) if slot.dtypes == op.dtypes else slot for slot in op.outputs)
    return replace(op, inputs=inputs, outputs=outputs)
