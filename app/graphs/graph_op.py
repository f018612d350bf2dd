"""The op of a graph."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
from pydantic import ValidationError, create_model
from pydantic.fields import FieldInfo

from app.autodiff.admission import bind_example
from app.errors import OpFailed, PullbackError, near, unprocessable, wrong
from app.graphs.claims import NumpyGraph
from app.graphs.composition import Composition, needs_guard, validation
from app.graphs.contract import Contract, Inference
from app.graphs.document import PREFIX, Bound, GraphDocument, GraphNode
from app.graphs.rows import batching, cost, sizes
from app.graphs.wiring import FindOp, Node, outputs_of, wired
from app.tensors.validation import entries
from ops import FLOATS, MODES, UNCOMPILED, Attrs, Example, Input, Op, Tensor

# The size of each symbol in an example that the document does not give.
SIZE = 2
# The most characters of a value in the text of a graph.
LONGEST_VALUE = 40
_KINDS: Mapping[Any, str] = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


@dataclass(frozen=True, eq=False)
class GraphOp(Op):
    """The op of a graph; its name is that of the document, or of the file that an operator has installed.

    ``nodes`` are the ops of its nodes, in order.
    """

    document: GraphDocument = field(kw_only=True)
    nodes: tuple[Op, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        """Check nothing: what follows from a valid document is valid."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Those of the only type variable, that of the nodes which no fixed dtype determines."""
        declared = [slot.dtypes for slot in (*self.inputs, *self.outputs)]
        return max(declared, key=lambda dtypes: (len(dtypes) > 1, dtypes[0] in FLOATS))

    @property
    def second_dtypes(self) -> tuple[str, ...]:
        """None: each node has one dtype in place of its second type variable."""
        return ()

    @property
    def second_names(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @property
    def parts(self) -> tuple[Op, ...]:
        """The ops of the nodes."""
        return self.nodes

    def node_without_gradient(self, name: str, inputs: Mapping[str, Tensor], attrs: Mapping[str, Any]) -> str:
        """Return the node at which the gradient of an input ends."""
        assert isinstance(self.function, Composition)
        return self.function.node_without_gradient(name, [inputs[slot.name] for slot in self.inputs], attrs)

    @cached_property
    def with_names(self) -> "GraphOp":
        """This op, whose kernels have the nodes in their names."""
        assert isinstance(self.function, Composition)
        return replace(self, function=self.function.with_names())

    @property
    def owner(self) -> str:
        """The posted graphs share one part of the service."""
        return PREFIX if self.name.startswith(f"{PREFIX}.") else self.name


def graph_op(document: GraphDocument, find: FindOp, name: str = "") -> GraphOp:
    """Return the op of a document, whose ops ``find`` returns; raises ``Unprocessable``.

    Nothing is traced: an op that fails does so at the first request.
    """
    nodes = wired(document, find)
    values, attrs = outputs_of(document, nodes), attributes(document, nodes)
    inference = Inference(document, attrs)
    for i, node in enumerate(nodes):
        inference.add(node, ("nodes", i))
    contract = inference.contract(nodes, values)
    inputs = {slot.name: slot.dtypes for slot in contract.inputs}
    default = max((slot.dtypes for slot in (*contract.inputs, *contract.outputs)), key=_rank)[0]
    in_numpy = NumpyGraph([*inputs], contract.nodes, [*values.values()])
    # XLA calls no function of Python.
    known = UNCOMPILED if any(needs_guard(each) for each in contract.nodes) else MODES
    op = GraphOp(
        name=name or document.name,
        summary=document.summary or f"A graph of {', '.join(dict.fromkeys(node.op.name for node in nodes))}"[:256],
        doc=document.doc or _doc(document),
        function=Composition(inputs, contract.nodes, [*values.values()], attrs, default),
        inputs=contract.inputs,
        outputs=contract.outputs,
        mechanism="composition",
        source="",
        examples=(),
        reference=in_numpy.reference if in_numpy.has_reference else None,
        attrs=attrs,
        claim=in_numpy.claim,
        modes=tuple([mode for mode in known if all(mode in node.op.modes for node in nodes)]),
        batching=batching(contract, attrs),
        cost=cost(contract),
        sizes=sizes(contract),
        validate=validation(contract),
        null_gradients=contract.null_gradients,
        document=document,
        nodes=tuple([node.op for node in nodes]),
    )
    object.__setattr__(op, "examples", tuple(_examples(document, op, contract)))
    return op


def _rank(dtypes: tuple[str, ...]) -> tuple[bool, bool]:
    return len(dtypes) > 1, dtypes[0] in FLOATS


def _doc(document: GraphDocument) -> str:
    """Return the nodes as text, an indented line for each."""
    return "\n".join(("The nodes, in order:\n", *(f"    {_line(node)}" for node in document.nodes)))


def _line(node: GraphNode) -> str:
    given = node.inputs.items() if isinstance(node.inputs, dict) else (("", source) for source in node.inputs)
    arguments = [(name, source if isinstance(source, str) else _shown(source.constant)) for name, source in given]
    arguments += [
        (name, value.attr if isinstance(value, Bound) else _shown(value)) for name, value in node.attrs.items()
    ]
    return f"{node.name} = {node.op}({', '.join(f'{name}={text}' if name else text for name, text in arguments)})"


def _shown(value: Any) -> str:
    """Return a number or word as JSON has it, and what takes more room as a word."""
    return "constant" if isinstance(value, dict | list) else json.dumps(value)[:LONGEST_VALUE]


def _examples(document: GraphDocument, op: GraphOp, contract: Contract) -> Iterator[Example]:
    """Yield the examples of the document; raises ``Unprocessable`` for one that is not valid.

    Without any, yield one of small shapes in the domains of the inputs, if the op accepts it.
    """
    for i, given in enumerate(document.examples):
        try:
            example = Example(given.name, given.inputs, given.attrs)
            bind_example(op, example)
        except OpFailed:
            raise
        except PullbackError as error:
            entry = error.entries[0] if error.entries else None
            loc, expected, got = (entry.loc, entry.expected, entry.got) if entry else ((), "a valid example", "")
            raise wrong(("examples", i, *loc), error.detail, expected=expected, got=got) from None
        except ValueError as error:
            raise wrong(("examples", i), "invalid example", expected="values of JSON", got=str(error)) from None
        yield example
    if not document.examples:
        example = Example("small", {slot.name: _values(slot, i) for i, slot in enumerate(contract.inputs)})
        try:
            bind_example(op, example)
        except PullbackError:
            return
        yield example


def _values(slot: Input, number: int) -> Any:
    """Return numbers of an input, in its domain if they are floats, and away from its middle."""
    shape = [size if isinstance(size, int) else SIZE for size in slot.shape if size != "..."]
    count, kind = int(np.prod(shape)), slot.dtypes[0]
    if kind == "bool":
        return np.full(shape, True).tolist()
    if kind not in FLOATS:
        return np.full(shape, 1 if slot.dtypes != ("int32",) else 0).tolist()
    low, high = slot.domain
    parts = (np.arange(count) * 0.37 + 0.21 * (number + 1)) % 1
    return np.round(low + (high - low) * (0.1 + 0.8 * parts), 3).reshape(shape).tolist()


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
