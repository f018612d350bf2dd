"""The attributes of a graph: those that attributes of nodes are bound to, with the types and bounds of all of these."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, get_args

from pydantic import ValidationError, create_model
from pydantic.fields import FieldInfo

from app.errors import near, unprocessable, wrong
from app.graphs.document import GraphDocument
from app.graphs.wiring import Node
from app.tensors.validation import entries
from ops import Attrs

_KINDS: Mapping[Any, str] = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def attributes(document: GraphDocument, nodes: Sequence[Node]) -> type[Attrs]:
    """Return the attributes of a graph; raises ``Unprocessable`` for bindings that contradict each other."""
    fields: dict[str, FieldInfo] = {}
    for i, node in enumerate(nodes):
        for name, attr in node.bound.items():
            own, at = node.op.attrs.model_fields[name], ("nodes", i, "attrs", name)
            if attr in {slot.name for slot in document.slots}:
                raise wrong(at, "an input of the graph has this name", expected="another name", got=attr)
            if hasattr(Attrs, attr):
                raise wrong(at, "this name is reserved", expected="another name", got=attr)
            fields[attr] = _merged(fields[attr], own, attr, at) if attr in fields else copy(own)
    if unknown := [name for name in document.attrs if name not in fields]:
        message = "no attribute of a node is bound to it"
        raise wrong(("attrs", unknown[0]), message, expected=near(unknown[0], fields), got=unknown[0])
    for name, value in document.attrs.items():
        fields[name].default = value
    if not fields:
        return Attrs
    kinds: dict[str, Any] = {name: (info.annotation, info) for name, info in fields.items()}
    made = create_model("GraphAttrs", __base__=Attrs, **kinds)
    _check_defaults(made, {name: info.default for name, info in fields.items()})
    return made


def _merged(one: FieldInfo, other: FieldInfo, attr: str, at: tuple[str | int, ...]) -> FieldInfo:
    """Return the field of an attribute that several nodes use: its bounds are those of all."""
    if one.annotation != other.annotation:
        message = f"attribute {attr} of the graph has another type at an earlier node"
        raise wrong(at, message, expected=_kind(one), got=_kind(other))
    found = copy(one)
    found.metadata = [*one.metadata, *(bound for bound in other.metadata if bound not in one.metadata)]
    return found


def _kind(field: FieldInfo) -> str:
    """Return the type of an attribute in the terms of JSON."""
    options = get_args(field.annotation)
    return f"one of {', '.join(map(str, options))}" if options else _KINDS.get(field.annotation, "another type")


def _check_defaults(made: type[Attrs], values: Mapping[str, Any]) -> None:
    try:
        made.model_validate(values)
    except ValidationError as error:
        raise unprocessable(entries(error.errors(include_url=False), made.model_fields, ("attrs",))) from None
