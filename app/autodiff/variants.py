"""The variants of an op that checks examine, and how a report names them."""

from app.autodiff.derived import origin, variant_of
from ops import Op, choices_of_inputs, variant


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
