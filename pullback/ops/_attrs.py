"""The attributes of an op: a pydantic model that each op subclasses, and what its fields may be."""

import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from pullback.ops._fields import first_fault, shown

BOUNDS = ("ge", "gt", "le", "lt")
# Integers are also sizes of dimensions, and drawn as 64 bits.
MAX_BOUND = 1 << 31


class Attrs(BaseModel):
    """The attributes of an op; subclass it, with a typed and bounded field and a default for each.

    A ``float`` field is a *number*: it reaches the op as a scalar tensor of the op's type variable, so that a new
    value never makes a new trace. Every other field (``Literal``, ``int``, ``bool``) is *static*: it reaches the op
    unchanged, and each value has its own trace.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    @cache
    def number_names(cls) -> tuple[str, ...]:
        """Return the names of the number attributes, in order of declaration."""
        return tuple(name for name, info in cls.model_fields.items() if info.annotation is float)

    @classmethod
    @cache
    def static_names(cls) -> tuple[str, ...]:
        """Return the names of the static attributes, in order of declaration."""
        return tuple(name for name, info in cls.model_fields.items() if info.annotation is not float)

    def numbers(self) -> dict[str, float]:
        """Return the number attributes, in order of declaration."""
        return {name: getattr(self, name) for name in self.number_names()}

    def static(self) -> dict[str, Any]:
        """Return the static attributes, in order of declaration."""
        return {name: getattr(self, name) for name in self.static_names()}


def check_attributes(attrs: type[Attrs]) -> None:
    """Raise ``ValueError`` if a field is not an attribute, has no valid default, or cannot be shown as JSON."""
    for key, value in Attrs.model_config.items():
        if attrs.model_config.get(key) != value:
            got = f"{key}={attrs.model_config.get(key)!r}"
            raise ValueError(f"attributes: expected the model_config of Attrs, got {got}; leave it out")
    for name, info in attrs.model_fields.items():
        if fault := _fault(name, info):
            raise ValueError(f"attribute {name!r}: {fault}")
    # Pydantic does not validate defaults unless asked.
    defaults = valid_attributes(attrs, {})
    values = {name: getattr(defaults, name) for name in attrs.model_fields}
    valid_attributes(attrs, values)
    if (dumped := defaults.model_dump()) != values:
        raise ValueError(f"attributes: expected model_dump() to return them, {shown(values)}, got {shown(dumped)}")
    try:
        json.dumps((values, attrs.model_json_schema()), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"attributes: expected values and bounds that JSON can represent, got {error}") from None


def valid_attributes(attrs: type[Attrs], values: Mapping[str, Any]) -> Attrs:
    """Return the attributes with these values; raise ``ValueError`` for a wrong one, or one without a default."""
    try:
        return attrs.model_validate(values)
    except ValidationError as error:
        name = next(iter(error.errors(include_url=False)[0]["loc"]), "attributes")
        kind = f"{shown(dict(values))}" if name in values else "a default for every attribute"
        raise ValueError(f"attribute {name!r}: expected {kind} to be valid, got{first_fault(error)}") from None


def _fault(name: str, info: FieldInfo) -> str:
    """Return what is wrong with the declaration of a field, "" if nothing is."""
    if hasattr(Attrs, name):
        return "expected a name that Attrs does not use itself"
    if info.exclude or any((info.alias, info.validation_alias, info.serialization_alias)):
        return "expected a field without an alias that is not excluded"
    bounds = {bound: getattr(m, bound) for m in info.metadata for bound in BOUNDS if hasattr(m, bound)}
    if not all(isinstance(bound, int | float) and math.isfinite(bound) for bound in bounds.values()):
        return f"expected finite bounds, got {shown(bounds)}; leave out those that are infinite"
    kind: object = info.annotation
    is_bounded = {"ge", "gt"} & bounds.keys() and {"le", "lt"} & bounds.keys()
    if kind is int and is_bounded and all(abs(bound) <= MAX_BOUND for bound in bounds.values()):
        return ""
    if kind is float or kind is bool or get_origin(kind) is Literal:
        return ""
    expected = f"float, bool, a Literal, or an int with bounds on both sides, within ±{MAX_BOUND}"
    return f"expected {expected} (each value has its own trace), got {info.annotation}"
