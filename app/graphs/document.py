"""The document of a graph: its models, its bounds, and the name that follows from its canonical form."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Self, TypeAlias, cast

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError

from app.errors import MAX_ENTRIES, Loc, Malformed, unprocessable, wrong
from app.tensors.casting import describe
from app.tensors.strict_json import Body, parse
from app.tensors.validation import entries, expected

PREFIX = "graph"
"""The first part of the name of a posted graph; the second is the digest of its document."""
DIGITS = 32
"""The hexadecimal digits of a digest: 128 bits, so that the name of an unknown document cannot be guessed."""
MAX_DOCUMENT = 1 << 20
MAX_NODES, MAX_SLOTS, MAX_EXAMPLES, MAX_DOC, MAX_RANK = 256, 32, 4, 4096, 8

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""The names in a document."""
_REFERENCE = re.compile(rf"{NAME.pattern}(\.{NAME.pattern})?")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}|\.\.\.")
_OP = re.compile(r"[a-z][a-z0-9_]{0,63}(\.(vjp|jvp)){0,4}")
_A_NAME = "a name: a letter, and up to 63 letters, digits and underscores"
_A_SOURCE = 'the name of an input or of an earlier node, "node.output", or {"constant": 1.0}'
_A_RESULT = 'the name of a node, or "node.output"'
_A_SIZE = 'an integer, a symbol such as "N", or "..."'
_A_VALUE = "a number, a string, true or false"


def _matching(pattern: re.Pattern[str], what: str) -> BeforeValidator:
    """Return the validator of a string that matches a pattern; its error says what is expected."""

    def checked(value: Any) -> Any:
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        raise expected(what)

    return BeforeValidator(checked)


def _size(value: Any) -> Any:
    if (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and _SYMBOL.fullmatch(value)
    ):
        return value
    raise expected(_A_SIZE)


def _attribute(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    raise expected(_A_VALUE)


def _form(value: Any) -> str:
    """Return the tag of the type that a value has where several are allowed; no key of an object is a tag."""
    return "<list>" if isinstance(value, list) else "<object>" if isinstance(value, dict | BaseModel) else "<value>"


def _by_form(what: str) -> Discriminator:
    return Discriminator(
        _form, custom_error_type="expected", custom_error_message=what.replace("{", "{{").replace("}", "}}")
    )


Name: TypeAlias = Annotated[str, Field(pattern=f"^{NAME.pattern}$"), _matching(NAME, _A_NAME)]
Reference: TypeAlias = Annotated[str, Field(pattern=f"^{_REFERENCE.pattern}$"), _matching(_REFERENCE, _A_SOURCE)]
Result: TypeAlias = Annotated[str, Field(pattern=f"^{_REFERENCE.pattern}$"), _matching(_REFERENCE, _A_RESULT)]
# What is wrong with a name of an op says whoever looks it up.
OpName: TypeAlias = Annotated[str, Field(max_length=128, json_schema_extra={"pattern": f"^{_OP.pattern}$"})]
Size: TypeAlias = Annotated[Annotated[str, Field(pattern=f"^({_SYMBOL.pattern})$")] | int, BeforeValidator(_size)]
Attribute: TypeAlias = Annotated[bool | int | float | str, BeforeValidator(_attribute)]
# Pydantic's own schema of a dictionary allows names that it refuses.
_NAMES: dict[str, Any] = {"propertyNames": {"pattern": f"^{NAME.pattern}$"}}


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
    shape: list[Size] | None = Field(
        default=None, max_length=MAX_RANK, description='Sizes, symbols, and "..." for any number of dimensions.'
    )
    domain: list[float] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="Where checks sample it: the least number and the largest.",
    )
    doc: str = Field(default="", max_length=MAX_DOC)


Source: TypeAlias = Annotated[
    Annotated[Reference, Tag("<value>")] | Annotated[Constant, Tag("<object>")], _by_form(_A_SOURCE)
]


class GraphNode(_Part):
    """A call of an op: where each of its inputs comes from, and its attributes."""

    name: Name
    op: OpName = Field(description="A registered op, or one derived from it, such as square.vjp.")
    inputs: (
        Annotated[dict[Name, Source], Field(max_length=MAX_SLOTS, json_schema_extra=_NAMES), Tag("<object>")]
        | Annotated[list[Source], Field(max_length=MAX_SLOTS), Tag("<list>")]
    ) = Field(
        discriminator=_by_form("an object by the names of the op's inputs, or a list in their order"),
        description="By the op's input, or in its order: an input of the graph, an earlier node, or its output "
        "(node.output), or a constant.",
    )
    attrs: dict[
        Name,
        Annotated[
            Annotated[Attribute, Tag("<value>")] | Annotated[Bound, Tag("<object>")],
            _by_form(f'{_A_VALUE}, or {{"attr": "NAME"}} for an attribute of the graph'),
        ],
    ] = Field(default={}, max_length=MAX_SLOTS, json_schema_extra=_NAMES)


class GraphExample(_Part):
    """An example of the graph, for its contract and its checks."""

    name: str = Field(max_length=64)
    inputs: dict[Name, Any] = Field(max_length=MAX_SLOTS, json_schema_extra=_NAMES)
    attrs: dict[Name, Attribute] = Field(default={}, max_length=MAX_SLOTS, json_schema_extra=_NAMES)


class GraphDocument(_Part):
    """A graph of ops: its inputs, its nodes in the order of their evaluation, and its outputs."""

    inputs: list[
        Annotated[
            Annotated[GraphInput, Tag("<object>")] | Annotated[Name, Tag("<value>")],
            _by_form("a name, or an object with a name"),
        ]
    ] = Field(min_length=1, max_length=MAX_SLOTS)
    nodes: list[GraphNode] = Field(min_length=1, max_length=MAX_NODES)
    outputs: dict[Name, Result] = Field(
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
            located = [_located(fault, fields) for fault in faults]
            raise unprocessable(
                [entry for each in located for entry in entries([each], _fields_at(each["loc"]))]
            ) from None

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


_PARTS: Mapping[str, type[_Part]] = {"inputs": GraphInput, "nodes": GraphNode, "examples": GraphExample}
_FIELDS_OF_ITEMS = 3


def _fields_at(loc: Loc) -> Iterable[str]:
    """Return the names that the field of a document at this place may have."""
    if len(loc) < _FIELDS_OF_ITEMS:
        return GraphDocument.model_fields
    if len(loc) == _FIELDS_OF_ITEMS:
        return _PARTS[str(loc[0])].model_fields if loc[0] in _PARTS else ()
    return (Constant if loc[2] == "inputs" else Bound).model_fields
