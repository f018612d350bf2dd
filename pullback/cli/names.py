"""What the ``name=value`` of a command line means, by the contract of the op."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.catalogue import Contract
from pullback.cli.values import attribute, tensor
from pullback.errors import BadArgument

ALL = ("inputs", "attrs", "cotangents", "tangents", "vectors", "gradients")
TAKES: Mapping[str, tuple[str, ...]] = {
    "forward": (),
    "gradients": ("cotangents",),
    "vjp": ("cotangents",),
    "jvp": ("tangents",),
    "jacobian": (),
    "hvp": ("vectors", "cotangents"),
    "hessian": ("cotangents",),
    "verify": ("cotangents", "gradients"),
}
"""The fields that each operation takes beside ``inputs`` and ``attrs``."""
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
    """What was given, by field and by name in it."""

    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    cotangents: dict[str, Any] = field(default_factory=dict[str, Any])
    tangents: dict[str, Any] = field(default_factory=dict[str, Any])
    vectors: dict[str, Any] = field(default_factory=dict[str, Any])
    gradients: dict[str, Any] = field(default_factory=dict[str, Any])


def arguments(contract: Contract, operation: str, given: Iterable[str]) -> Arguments:
    """Sort ``name=value`` into fields.

    ``x`` is an input or an attribute; ``dy`` the cotangent of an output y, ``tx`` the tangent, ``vx`` or ``ddx`` the
    vector and ``gx`` the gradient of an input x. A field before the name, ``inputs.x``, leaves no doubt. Raises
    ``BadArgument`` for a name that is unknown or that means two things.
    """
    known, found = meanings(contract, operation), Arguments()
    for text in given:
        name, value = split(text)
        place, slot = _meaning(name, known, f"{contract.name} {operation}")
        into: dict[str, Any] = getattr(found, place)
        if slot in into:
            raise BadArgument(f"{name}: given twice; give {place}.{slot} once")
        schema = contract.attr_schemas.get(slot)
        into[slot] = attribute(value, schema) if place == "attrs" else tensor(name, value)
    return found


def split(text: str) -> tuple[str, str]:
    """Return the name and the value of ``name=value``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise BadArgument(f"expected NAME=VALUE, such as x=1,2,3 or x=@x.npy, got {text!r}")
    return name, value


def meanings(contract: Contract, operation: str) -> dict[str, list[tuple[str, str]]]:
    """Return every name that may stand before an equals sign, and what it means: a field and a name in it."""
    inputs, outputs = [slot.name for slot in contract.inputs], [slot.name for slot in contract.outputs]
    slots: dict[str, Sequence[str]] = dict.fromkeys(ALL, inputs)
    slots |= {"cotangents": outputs, "attrs": list(contract.attr_schemas)}
    found: dict[str, list[tuple[str, str]]] = {}
    for place in ("inputs", "attrs", *TAKES[operation]):
        for slot in slots[place]:
            for prefix in PREFIXES[place]:
                found.setdefault(prefix + slot, []).append((place, slot))
            found[f"{place}.{slot}"] = [(place, slot)]
    return found


def _meaning(name: str, known: Mapping[str, list[tuple[str, str]]], what: str) -> tuple[str, str]:
    match known.get(name, []):
        case [one]:
            return one
        case []:
            short = [key for key in known if "." not in key]
            near = difflib.get_close_matches(name, short, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise BadArgument(f"{name}: {what} takes no such name{hint}; it takes {', '.join(short)}")
        case several:
            choices = " or ".join(f"{place}.{slot}=..." for place, slot in several)
            raise BadArgument(f"{name}: this means two things; write {choices}")
