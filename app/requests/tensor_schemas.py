"""JSON Schemas of tensors, as components of an OpenAPI document.

A schema cannot require lists of equal length, or data that fit a shape: the tensor codec (``app.tensors.json``) does.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from app.tensors.casting import DIGITS
from app.tensors.dtypes import COMPLEX, DTYPES, MAX_DIMENSION, MAX_RANK

Schema: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["Number", "Integer", "Boolean"]

_SCALARS: dict[Kind, Schema] = {
    "Number": {"anyOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]},
    "Integer": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": f"^{DIGITS.pattern}$"}]},
    "Boolean": {"type": "boolean"},
}
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
RANKS = range(MAX_RANK + 1)


def ref(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def nested(kind: Kind, rank: int) -> Schema:
    """Return the schema of lists nested as deep as ``rank``; rank 0 is an element without a list."""
    return ref(f"{kind}{rank}" if rank else kind)


def typed(kind: Kind, dtypes: Sequence[str]) -> list[Schema]:
    """Return the schemas of tensors with a dtype and a shape: with data, flat or nested, and with base64."""
    sizes = {"type": "integer", "minimum": 0, "maximum": MAX_DIMENSION}
    shape = {"type": "array", "items": sizes, "minItems": min(RANKS), "maxItems": max(RANKS)}
    content: Schema = {
        "data": {"anyOf": [nested(kind, rank) for rank in RANKS]},
        "base64": {"type": "string", "contentEncoding": "base64", "pattern": _BASE64},
    }
    return [
        {
            "type": "object",
            "properties": {"dtype": {"type": "string", "enum": list(dtypes)}, "shape": shape, key: value},
            "required": ["dtype", "shape", key],
            "additionalProperties": False,
        }
        for key, value in content.items()
    ]


def components() -> dict[str, Schema]:
    """Return the components by name: an element and its nested lists of each kind, and tensors of any dtype and rank.

    ``Tensor`` is what a request may have, and ``TypedTensor`` what an answer has.
    """
    found: dict[str, Schema] = {**_SCALARS}
    for kind in _SCALARS:
        found |= {f"{kind}{rank}": {"type": "array", "items": nested(kind, rank - 1)} for rank in RANKS if rank}
    forms: dict[str, tuple[Kind, list[str]]] = {
        "FloatTensor": ("Number", [name for name, row in DTYPES.items() if row.is_float]),
        "IntegerTensor": ("Integer", [name for name, row in DTYPES.items() if not (row.is_float or row.is_bool)]),
        "ComplexTensor": ("Number", list(COMPLEX)),
        "BooleanTensor": ("Boolean", [name for name, row in DTYPES.items() if row.is_bool]),
    }
    for name, (kind, dtypes) in forms.items():
        found[name], found[f"{name}Base64"] = typed(kind, dtypes)
    found["TypedTensor"] = {"anyOf": [ref(name) for form in forms for name in (form, f"{form}Base64")]}
    plain = [nested(kind, rank) for kind in ("Number", "Boolean") for rank in RANKS]
    found["Tensor"] = {"anyOf": [*plain, *found["TypedTensor"]["anyOf"]]}
    return found
