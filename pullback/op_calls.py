"""Calls of the methods of an op, whose arrays may lack names. This module does no I/O."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import numpy as np

from pullback import bodies, safetensors
from pullback.arrays import ArrayLike, Arrays, array_or_json, shared_float
from pullback.bodies import Body
from pullback.calls import Call, Common, deadline_of, op_path, segment
from pullback.catalogue import Contract
from pullback.dtypes import Array
from pullback.errors import BadArgument
from pullback.limits import Limit, checked
from pullback.results import Reader

T = TypeVar("T")


def put(op: str, values: Mapping[str, ArrayLike], deadline: float | None) -> Call[str]:
    """Put values; the result is their digest."""
    arrays = {name: np.asarray(array_or_json(value, name)) for name, value in values.items()}
    body = Body(safetensors.MEDIA_TYPE, tuple(safetensors.write(arrays, "{}")))
    limit = checked("deadline", deadline)
    return Call(op_path(op, "parameters"), _digest, body, deadline=limit, may_repeat=True, verb="PUT")


def get(op: str, digest: str, deadline: float | None) -> Call[dict[str, Array]]:
    """Get the values with a digest."""
    path, limit = f"{op_path(op, 'parameters')}/{segment(digest)}", checked("deadline", deadline)
    return Call(path, dict, None, safetensors.MEDIA_TYPE, limit, may_repeat=True)


def _digest(document: Mapping[str, Any]) -> str:
    return str(document["digest"])


@dataclass(frozen=True, eq=False)
class TensorField:
    """A field of requests: arrays by the names of the op's inputs, or outputs.

    On the command line, ``prefixes`` before such a name stand for the field.
    """

    name: str
    of: Literal["inputs", "outputs"]
    prefixes: tuple[str, ...]


INPUTS = TensorField("inputs", "inputs", ("",))
COTANGENTS = TensorField("cotangents", "outputs", ("d",))
TANGENTS = TensorField("tangents", "inputs", ("t",))
VECTORS = TensorField("vectors", "inputs", ("v", "dd"))


class Positional(NamedTuple):
    """Arrays without names, in the order of the op's inputs."""

    arrays: tuple[Any, ...]


class OpCall(NamedTuple, Generic[T]):
    """A call of a method of an op; ``limit`` has started with it.

    ``tensors`` has arrays by name, or one without a name, and ``fields`` the rest of the body. ``accept`` is the media
    type of the response, by default that of the body.
    """

    path: str
    read: Reader[T]
    limit: Limit
    tensors: Mapping[TensorField, Arrays | ArrayLike | Positional | None]
    fields: Mapping[str, Any]
    write: Callable[[Mapping[str, Any], bodies.TensorsByField], Body]
    accept: str | None = None

    @property
    def is_named(self) -> bool:
        """Whether all arrays have names."""
        return all(map(_is_named, self.tensors.values()))

    def named(self, contract: Contract | None) -> Call[T]:
        """Return the call with the names of its arrays, which the contract has unless ``is_named``."""
        tensors = {
            field.name: {
                name: array_or_json(x, f"{field.name}.{name}") for name, x in _named(field, value, contract).items()
            }
            for field, value in self.tensors.items()
            if value is not None
        }
        fields = self.fields
        if "dtype" in fields and fields["dtype"] is None:
            fields = {**fields, "dtype": shared_float(tensors.values())}
        body = self.write(fields, tensors)
        accept = self.accept or body.media_type
        if accept == safetensors.MEDIA_TYPE and fields.get("dtype") not in ("float32", "complex64"):
            accept = f"{accept}, {bodies.JSON};q=0.5"  # for complex128, which safetensors lacks
        return Call(self.path, self.read, body, accept, self.limit.seconds, may_repeat=True)


def evaluation(
    path: str,
    read: Reader[T],
    tensors: Mapping[TensorField, Arrays | ArrayLike | Positional | None],
    common: Common,
    options: Mapping[str, Any],
    *,
    is_larger: bool = False,
) -> OpCall[T]:
    """Return the call of an operation; one whose results are larger than the request gets them in safetensors."""
    fields = {**options, **common, "deadline": None, "dtype": common.get("dtype") or None, "encoding": "base64"}
    accept = safetensors.MEDIA_TYPE if is_larger else None
    return OpCall(path, read, Limit(deadline_of(common)), tensors, fields, bodies.write, accept)


def _is_named(value: Any) -> bool:
    # A check for an abstract class alone takes ten times as long.
    return value is None or isinstance(value, (dict, Mapping))


def _named(field: TensorField, value: Arrays | ArrayLike | Positional, contract: Contract | None) -> Arrays:
    """Return arrays by name; one without takes the only name that it can have, or raises ``BadArgument``."""
    if contract is None or _is_named(value):
        return cast(Arrays, value)
    if isinstance(value, Positional):
        return _in_order(value, contract)
    slots = contract.outputs if field.of == "outputs" else contract.inputs
    names = [slot.name for slot in slots if (slot.differentiable or field.name == "inputs") and not slot.optional]
    if len(names) != 1:
        example = ", ".join(f"{name!r}: ..." for name in names)
        got = f"a {type(value).__name__} without a name"
        raise BadArgument(f"{field.name}: {contract.name} has {len(names)}, so expected {{{example}}}, got {got}")
    return {names[0]: value}


def _in_order(value: Positional, contract: Contract) -> Arrays:
    slots, names = contract.inputs, [slot.name for slot in contract.inputs]
    given = {slot.name: x for slot, x in zip(slots, value.arrays, strict=False) if x is not None or not slot.optional}
    needed = {slot.name for slot in slots if not slot.optional}
    if len(value.arrays) > len(names) or not needed <= given.keys() or any(map(_is_named, given.values())):
        expected = f"{len(names)} arrays ({', '.join(names)}), or one dictionary of them"
        raise BadArgument(f"inputs: {contract.name}: expected {expected}, got {len(value.arrays)} arguments")
    return given
