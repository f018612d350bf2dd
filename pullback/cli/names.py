"""The meaning of ``name=value`` on the command line, by the contract of the op."""

from collections.abc import Iterable, Mapping
from typing import Any

from pullback.catalogue import Contract
from pullback.cli.values import attribute, tensor
from pullback.errors import BadArgument
from pullback.gradcheck.function import as_object
from pullback.op import COTANGENTS, GRADIENTS, INPUTS, OPERATIONS
from pullback.wording import near_names


def arguments(contract: Contract, operation: str, assignments: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the values of ``name=value``, by the fields of an operation, or of ``verify``, and by name.

    ``x`` is an input, a parameter or an attribute; ``dy`` the cotangent of an output y, ``tx`` the tangent, ``vx`` or
    ``ddx`` the vector and ``gx`` the gradient of an input or parameter x. With its field, as in ``inputs.x``, a name is
    never ambiguous. ``@point.json`` has several values, as the point of a finding has them:
    ``{"inputs": {"x": [1, 2]}, "cotangents": {"y": [1, 1]}}``. Raises ``BadArgument`` for a name that is unknown or
    ambiguous.
    """
    known, result = meanings(contract, operation), dict[str, dict[str, Any]]()
    for text in assignments:
        if text.startswith("@"):
            _add_point(text, known, result)
            continue
        name, value = split(text)
        field, slot = _resolve(name, known, f"{contract.name} {operation}")
        values = result.setdefault(field, {})
        if slot in values:
            raise BadArgument(f"{name}: duplicate name; set {field}.{slot} only once")
        schema = contract.attr_schemas.get(slot)
        values[slot] = attribute(name, value, schema) if field == "attrs" else tensor(name, value)
    return result


def _add_point(text: str, known: Mapping[str, list[tuple[str, str]]], result: dict[str, dict[str, Any]]) -> None:
    """Add the values of a file, by field and name."""
    fields = as_object(tensor("a point", text)) or {"": None}
    if not all(as_object(values) is not None for values in fields.values()):
        expected = '{"inputs": {"x": [1, 2]}, "cotangents": {"y": [1, 1]}}'
        raise BadArgument(f"{text}: expected JSON such as {expected}: write NAME={text} for the values of one name")
    for field, values in fields.items():
        for slot, value in values.items():
            if f"{field}.{slot}" not in known:
                choices = ", ".join(name for name in known if "." in name)
                raise BadArgument(f"{text}: unknown name {field}.{slot}; expected some of {choices}")
            if slot in result.setdefault(field, {}):
                raise BadArgument(f"{field}.{slot}: duplicate name; {text} has it too")
            result[field][slot] = value


def split(text: str) -> tuple[str, str]:
    """Return the name and the value of ``name=value``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise BadArgument(f"expected NAME=VALUE, such as x=1,2,3 or x=@x.npy, got {text!r}")
    return name, value


def meanings(contract: Contract, operation: str) -> dict[str, list[tuple[str, str]]]:
    """Return every name that an assignment may have, with its meanings: a field and a name within it."""
    inputs = [slot.name for slot in (*contract.inputs, *contract.parameters)]
    slots = {"inputs": inputs, "outputs": [slot.name for slot in contract.outputs]}
    tensors = OPERATIONS[operation].tensors if operation in OPERATIONS else [COTANGENTS, GRADIENTS]
    fields = [(tensor.name, slots[tensor.of], tensor.prefixes) for tensor in (INPUTS, *tensors)]
    known: dict[str, list[tuple[str, str]]] = {}
    for field, names, prefixes in (*fields, ("attrs", contract.attr_schemas, ("",))):
        for name in names:
            for prefix in prefixes:
                known.setdefault(prefix + name, []).append((field, name))
            known[f"{field}.{name}"] = [(field, name)]
    return known


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the name nearest to ``name``, or "" if none is near."""
    near = near_names(name, known, 1)
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
            choices = " or ".join(f"{field}.{slot}=..." for field, slot in several)
            raise BadArgument(f"{name}: ambiguous name; write {choices}")
