"""The meaning of ``name=value`` on the command line, by the contract of the op."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.catalogue import Contract
from pullback.cli.values import attribute, tensor
from pullback.errors import BadArgument

FIELDS = ("inputs", "attrs", "cotangents", "tangents", "vectors", "gradients")
TENSOR_FIELDS: Mapping[str, tuple[str, ...]] = {
    "forward": (),
    "gradients": ("cotangents",),
    "vjp": ("cotangents",),
    "jvp": ("tangents",),
    "jacobian": (),
    "hvp": ("vectors", "cotangents"),
    "hessian": ("cotangents",),
    "verify": ("cotangents", "gradients"),
}
"""The fields of each operation beside ``inputs`` and ``attrs``."""
PREFIXES: Mapping[str, tuple[str, ...]] = {
    "inputs": ("",),
    "attrs": ("",),
    "cotangents": ("d",),
    "tangents": ("t",),
    "vectors": ("v", "dd"),
    "gradients": ("g",),
}


@dataclass
class Arguments:
    """The values by field, and by name within it."""

    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    cotangents: dict[str, Any] = field(default_factory=dict[str, Any])
    tangents: dict[str, Any] = field(default_factory=dict[str, Any])
    vectors: dict[str, Any] = field(default_factory=dict[str, Any])
    gradients: dict[str, Any] = field(default_factory=dict[str, Any])


def arguments(contract: Contract, operation: str, assignments: Iterable[str]) -> Arguments:
    """Sort ``name=value`` into fields.

    ``x`` is an input or an attribute; ``dy`` the cotangent of an output y, ``tx`` the tangent, ``vx`` or ``ddx`` the
    vector and ``gx`` the gradient of an input x. With its field, as in ``inputs.x``, a name is never ambiguous. Raises
    ``BadArgument`` for a name that is unknown or ambiguous.
    """
    known, result = meanings(contract, operation), Arguments()
    for text in assignments:
        name, value = split(text)
        place, slot = _resolve(name, known, f"{contract.name} {operation}")
        values: dict[str, Any] = getattr(result, place)
        if slot in values:
            raise BadArgument(f"{name}: duplicate name; set {place}.{slot} only once")
        schema = contract.attr_schemas.get(slot)
        values[slot] = attribute(name, value, schema) if place == "attrs" else tensor(name, value)
    return result


def split(text: str) -> tuple[str, str]:
    """Return the name and the value of ``name=value``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise BadArgument(f"expected NAME=VALUE, such as x=1,2,3 or x=@x.npy, got {text!r}")
    return name, value


def meanings(contract: Contract, operation: str) -> dict[str, list[tuple[str, str]]]:
    """Return every name that an assignment may have, with its meanings: a field and a name within it."""
    inputs, outputs = [slot.name for slot in contract.inputs], [slot.name for slot in contract.outputs]
    slots: dict[str, Sequence[str]] = dict.fromkeys(FIELDS, inputs)
    slots |= {"cotangents": outputs, "attrs": list(contract.attr_schemas)}
    known: dict[str, list[tuple[str, str]]] = {}
    for place in ("inputs", "attrs", *TENSOR_FIELDS[operation]):
        for slot in slots[place]:
            for prefix in PREFIXES[place]:
                known.setdefault(prefix + slot, []).append((place, slot))
            known[f"{place}.{slot}"] = [(place, slot)]
    return known


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the name nearest to ``name``, or "" if none is near."""
    near = difflib.get_close_matches(name[:64], list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""


def _resolve(name: str, known: Mapping[str, list[tuple[str, str]]], operation: str) -> tuple[str, str]:
    match known.get(name, []):
        case [meaning]:
            return meaning
        case []:
            short = [key for key in known if "." not in key]
            hint = did_you_mean(name, known if "." in name else short)
            raise BadArgument(f"{name}: unknown name for {operation}{hint}; it takes {', '.join(short)}")
        case several:
            choices = " or ".join(f"{place}.{slot}=..." for place, slot in several)
            raise BadArgument(f"{name}: ambiguous name; write {choices}")
