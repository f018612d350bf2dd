"""The document of a graph: its models, its bounds, and the name that follows from its canonical form."""

import hashlib
import re
from functools import cached_property
from typing import Annotated, Any, Self, TypeAlias, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import MAX_ENTRIES, Malformed, unprocessable, wrong
from app.tensors.casting import describe
from app.tensors.strict_json import Body, parse
from app.tensors.validation import entries

PREFIX = "graph"
"""The first part of the name of a posted graph; the second is the digest of its document."""
DIGITS = 32
"""The hexadecimal digits of a digest: 128 bits, so that the name of an unknown document cannot be guessed."""
MAX_DOCUMENT = 1 << 20
MAX_NODES, MAX_SLOTS, MAX_EXAMPLES, MAX_DOC, MAX_RANK = 256, 32, 4, 4096, 8

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
Name: TypeAlias = Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
Reference: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}(\.[a-z][a-z0-9_]{0,63})?$")]
OpName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}(\.(vjp|jvp)){0,4}$")]
Attribute: TypeAlias = bool | int | float | str
# Pydantic's own schema of a dictionary allows names that it refuses.
_NAMES: dict[str, Any] = {"propertyNames": {"pattern": rf"^{NAME.pattern}$"}}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Constant(_Part):
    """A tensor that the document fixes; a number stands for a tensor of the shape that the node needs."""

    constant: Any = Field(description="A number, a nested list of numbers, or a typed tensor.")


class Bound(_Part):
    """An attribute of the graph that gives an attribute of a node its value."""

    attr: Name


class GraphInput(_Part):
    """An input of the graph; what is left out follows from the nodes that it reaches."""

    name: Name
    shape: list[Name | Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,63}|\.\.\.)$")] | int] | None = Field(
        default=None, max_length=MAX_RANK, description='Sizes, symbols, and "..." for any number of dimensions.'
    )
    domain: list[float] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="Where checks sample it: the least number and the largest.",
    )
    doc: str = Field(default="", max_length=MAX_DOC)


class GraphNode(_Part):
    """A call of an op: where each of its inputs comes from, and its attributes."""

    name: Name
    op: OpName = Field(description="A registered op, or one derived from it, such as square.vjp.")
    inputs: (
        Annotated[dict[Name, Reference | Constant], Field(max_length=MAX_SLOTS, json_schema_extra=_NAMES)]
        | Annotated[list[Reference | Constant], Field(max_length=MAX_SLOTS)]
    ) = Field(
        description="By the op's input, or in its order: an input of the graph, an earlier node, or its output "
        "(node.output), or a constant.",
    )
    attrs: dict[Name, Attribute | Bound] = Field(default={}, max_length=MAX_SLOTS, json_schema_extra=_NAMES)


class GraphExample(_Part):
    """An example of the graph, for its contract and its checks."""

    name: str = Field(max_length=64)
    inputs: dict[Name, Any] = Field(max_length=MAX_SLOTS, json_schema_extra=_NAMES)
    attrs: dict[Name, Attribute] = Field(default={}, max_length=MAX_SLOTS, json_schema_extra=_NAMES)


class GraphDocument(_Part):
    """A graph of ops: its inputs, its nodes in the order of their evaluation, and its outputs."""

    inputs: list[GraphInput | Name] = Field(min_length=1, max_length=MAX_SLOTS)
    nodes: list[GraphNode] = Field(min_length=1, max_length=MAX_NODES)
    outputs: dict[Name, Reference] = Field(
        min_length=1,
        max_length=MAX_SLOTS,
        json_schema_extra=_NAMES,
        description="By the name of the output, in the order of the op's outputs: the node that computes it.",
    )
    attrs: dict[Name, Attribute] = Field(
        default={},
        max_length=MAX_SLOTS,
        json_schema_extra=_NAMES,
        description="Defaults of the graph's attributes; others are the nodes'.",
    )
    summary: str = Field(default="", max_length=256)
    doc: str = Field(default="", max_length=MAX_DOC)
    examples: list[GraphExample] = Field(default=[], max_length=MAX_EXAMPLES)

    @classmethod
    def read(cls, body: Body) -> Self:
        """Return the document in a body; raises ``Malformed`` or ``Unprocessable``."""
        return cls.of(parse(body))

    @classmethod
    def of(cls, fields: Any) -> Self:
        """Return the document with these fields; raises ``Unprocessable``, with an entry for each error."""
        if not isinstance(fields, dict):
            raise wrong((), "expected an object", expected="an object", got=describe(fields))
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            faults = error.errors(include_url=False)[:MAX_ENTRIES]
            raise unprocessable(entries([_located(fault, fields) for fault in faults], cls.model_fields)) from None

    @property
    def slots(self) -> list[GraphInput]:
        """The inputs of the graph."""
        return [GraphInput(name=each) if isinstance(each, str) else each for each in self.inputs]

    @cached_property
    def canonical(self) -> bytes:
        """The document as JSON, the same for equal documents: without what is not set, and with sorted keys.

        The outputs keep their order, which is that of the op's outputs.
        """
        inputs = [slot.model_dump(exclude_defaults=True) for slot in self.slots]
        outputs = orjson.Fragment(orjson.dumps(self.outputs))
        fields = {**self.model_dump(exclude_defaults=True), "inputs": inputs, "outputs": outputs}
        try:
            return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            raise Malformed("expected integers of 64 bits, and lists that are nested less than 200 deep") from None

    @cached_property
    def name(self) -> str:
        """The name of the graph's op: ``graph.`` and the digest of its canonical form."""
        return f"{PREFIX}.{hashlib.sha256(self.canonical).hexdigest()[:DIGITS]}"


def _located(fault: Any, document: Any) -> Any:
    """Return a fault of pydantic at its place in the document: without the types that pydantic has tried there."""
    loc, at = list[str | int](), document
    for part in fault["loc"]:
        if (isinstance(at, dict) and part in at) or (isinstance(at, list) and isinstance(part, int)):
            loc.append(part)
            at = cast(Any, at)[part]
    return {**fault, "loc": (*loc, *fault["loc"][-1:]) if fault["type"] == "missing" else tuple(loc)}
