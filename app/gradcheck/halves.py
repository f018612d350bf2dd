"""Ops of half precision alone: most functions compute in wider dtypes too, where numeric derivatives have digits."""

from dataclasses import replace

from app.autodiff.binding import Decode
from app.errors import PullbackError
from app.gradcheck.options import Options
from app.gradcheck.target import Target
from app.runtime.owned_cache import OwnedCache
from ops import Op

HALF, WIDER = frozenset({"float16", "bfloat16"}), ("float64", "float32")


def widened(op: Op, options: Options, decode: Decode) -> Op:
    """Return the op with a wider dtype, if all of its dtypes are half precision and its function computes in one.

    Then its half precision is compared with the wider dtype, as that of any other op.
    """
    if not set(op.dtypes) <= HALF:
        return op
    for dtype in WIDER:
        wide = _with_dtype(op, dtype)
        try:
            _ = Target(wide, op.examples[0].attrs, options, decode).samples[0].values
        except PullbackError:
            continue
        return wide
    return op


_widened = OwnedCache[str, Op](64)


def _with_dtype(op: Op, dtype: str) -> Op:
    """Return the op with one more dtype: always the same one, because traces are kept by op."""
    return _widened.get(op, dtype) or _widened.keep(op, dtype, _widen(op, dtype))


def _widen(op: Op, dtype: str) -> Op:
    dtypes = (*op.dtypes, dtype)
    inputs = tuple(replace(slot, dtypes=dtypes) if slot.dtypes == op.dtypes else slot for slot in op.inputs)
    outputs = tuple(replace(slot, dtypes=dtypes) if slot.dtypes == op.dtypes else slot for slot in op.outputs)
    return replace(op, inputs=inputs, outputs=outputs)
