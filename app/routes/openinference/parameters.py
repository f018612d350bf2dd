"""The parameters of a request, of its tensors and of its outputs.

The protocol leaves parameters to the extensions of servers. Those of a tensor or of an output that the service does not
know are ignored, because clients add their own: MLServer's codecs label every tensor with ``content_type``. Those of a
request are attributes of the op, and a misspelt attribute would change the numbers silently, so others are refused.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

from app.errors import MAX_GOT, Loc, clip, near, wrong
from app.routes.openinference.models import PARAMETERS, Model
from app.tensors.casting import describe

MICROSECONDS = 1_000_000
# The parameters of a request that other servers know and that change nothing here. An attribute may have their names.
IGNORED = ("content_type", "headers")
# Extensions of Triton that would change the answer, by the parameter of a request or an output that asks for them.
REFUSED = {
    **dict.fromkeys(("sequence_id", "sequence_start", "sequence_end"), "sequences are not supported"),
    "classification": "classes are not supported",
}

Object = Mapping[str, Any]


def parameters_of(fields: Object, loc: Loc) -> Object:
    """Return the parameters of a request, a tensor or an output, empty if they are missing or null."""
    value = fields.get("parameters")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong((*loc, "parameters"), "expected an object", expected="an object", got=describe(value))
    return cast("dict[str, Any]", value)


def refuse_extensions(parameters: Object, loc: Loc) -> None:
    """Raise ``Unprocessable`` for shared memory, sequences and classes, which clients turn off by 0, "" or false."""
    for name, value in parameters.items():
        if name in REFUSED and (value or not isinstance(value, int | str | None)):
            raise wrong((*loc, name), REFUSED[name], expected="no such parameter, or 0", got=describe(value))
        if name.startswith("shared_memory_"):
            expected = "binary data in the body"
            raise wrong((*loc, name), "shared memory is not supported", expected=expected, got=clip(name, MAX_GOT))


def attrs(model: Model, parameters: Object) -> dict[str, Any]:
    """Return the attributes among the parameters of a request; raises ``Unprocessable`` for unknown parameters."""
    known, found = model.op.attrs.model_fields, dict[str, Any]()
    for name, value in parameters.items():
        if name in known:
            found[name] = value
        elif name not in PARAMETERS and name not in IGNORED and name not in REFUSED:
            raise wrong(("parameters", name), "unknown parameter", expected=near(name, known), got=name)
    refuse_extensions({name: value for name, value in parameters.items() if name not in known}, ("parameters",))
    _whole(parameters, "priority", ("parameters",))
    return found


def timeout_s(parameters: Object) -> float:
    """Return the timeout of a request in seconds, infinite if it has none, or 0 as Triton's clients send."""
    return (_whole(parameters, "timeout", ("parameters",)) / MICROSECONDS) or math.inf


def flag(parameters: Object, name: str, loc: Loc) -> bool | None:
    """Return a parameter that is true or false, ``None`` if it is missing or null."""
    value = parameters.get(name)
    if not isinstance(value, bool | None):
        raise wrong((*loc, name), "expected a bool", expected="true or false", got=describe(value))
    return value


def _whole(parameters: Object, name: str, loc: Loc) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or value < 0:
        raise wrong((*loc, name), "expected an integer", expected="an integer from 0", got=describe(value))
    return value
