"""The variants of an op that checks examine: those of its inputs, and a wider dtype for an op without float64."""

from contextlib import suppress
from dataclasses import replace

from app.autodiff.binding import Decode
from app.autodiff.derived import origin, variant_of
from app.errors import PullbackError
from app.gradcheck import choices
from app.gradcheck.graphs import has_narrow_floats
from app.gradcheck.options import Options
from app.gradcheck.reference import is_as_reference
from app.gradcheck.target import Target
from app.runtime.op_errors import expected_errors
from app.runtime.owned_cache import OwnedCache
from ops import FLOATS, Op, choices_of_inputs, variant

HALF, WIDER = frozenset({"float16", "bfloat16"}), ("float64", "float32")


def variants(op: Op) -> list[Op]:
    """Return the variants of an op: those of each choice of optional inputs, then of each further second dtype."""
    if not op.has_variants:
        return [op]
    found = [variant_of(op, dict.fromkeys(sent)) for sent in choices_of_inputs(origin(op)[0])]
    every = dict[str, str | None].fromkeys(slot.name for slot in op.inputs)
    slot = next((slot for slot in op.inputs if slot.name in op.second_names), None)
    return found + [variant_of(op, every | {slot.name: dtype}) for dtype in (slot.dtypes[1:] if slot else ()) if slot]


def is_in_examples(op: Op) -> bool:
    """Return whether an example has exactly the inputs of a variant, where its second type variable is the default."""
    one, every = origin(op)[0], origin(op.general)[0]
    names = {slot.name for slot in one.inputs} - {each.name for each in one.parameters}
    has_default = variant(every, names).inputs == one.inputs
    return one is every or (has_default and any(set(example.inputs) == names for example in every.examples))


def label(op: Op) -> str:
    """Return how a variant differs from the op with all inputs and defaults: ``without b``; "" if it does not."""
    one, every = origin(op)[0], origin(op.general)[0]
    slots = {slot.name: slot for slot in one.inputs}
    absent = [slot.name for slot in every.inputs if slot.name not in slots]
    second = [slot for slot in one.inputs if slot.name in every.second_names]
    parts = [f"without {', '.join(absent)}"] if absent else []
    parts += [f"with {slot.name} in {slot.dtypes[0]}" for slot in second if slot.dtypes[0] != every.second_dtypes[0]]
    return ", ".join(parts)


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
