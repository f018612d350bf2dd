"""The nodes of a document with their ops: what each input of a node is, and which attributes are the graph's."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from pydantic import ValidationError

from app.autodiff.derived import DerivedOp, variant_of, without_parameters
from app.errors import Faults, Loc, NotFound, Unprocessable, near, unprocessable, wrong
from app.graphs.document import PREFIX, Bound, Constant, GraphDocument, GraphNode
from app.tensors.dtypes import DTYPES
from app.tensors.json import decode
from app.tensors.validation import entries
from ops import BOOL, Array, Attrs, Op
from pullback.wording import counted

FindOp: TypeAlias = Callable[[str], Op]
"""Returns the op with a name; raises ``NotFound``."""

# The constants of a document in bytes of float64, and the work of its nodes, where a derivation is three times as much.
MAX_CONSTANTS, MAX_WORK, WORK = 1 << 16, 512, 3


class Value(NamedTuple):
    """An input of the graph, whose node is empty, or an output of a node."""

    node: str
    name: str


@dataclass(frozen=True, eq=False)
class Fixed:
    """A constant: its value as in JSON, and its shape."""

    value: Any
    shape: tuple[int, ...]

    def array(self, dtype: str) -> Array:
        """Return the constant as an array of a dtype; raises ``Unprocessable`` if the dtype cannot represent it."""
        return decode(self.value, dtype, ())

    def fits(self, dtype: str) -> bool:
        """Return whether a dtype can represent it."""
        try:
            self.array(dtype)
        except Unprocessable:
            return False
        return True


@dataclass(frozen=True, eq=False)
class Node:
    """A node with its op: where its inputs come from, in the op's order, and where its attributes do.

    ``fixed`` are the attributes with a value; ``bound`` maps others to the attributes of the graph.
    """

    name: str
    op: Op
    sources: Mapping[str, Value | Fixed]
    fixed: Mapping[str, Any]
    bound: Mapping[str, str]

    def values(self) -> Iterator[tuple[str, Value]]:
        """Yield the inputs that are values, not constants."""
        for slot, source in self.sources.items():
            if isinstance(source, Value):
                yield slot, source

    def attrs(self, of_graph: Attrs) -> Attrs:
        """Return the attributes of the op for those of the graph, valid or not."""
        bound = {name: getattr(of_graph, attr) for name, attr in self.bound.items()}
        defaults = {name: info.default for name, info in self.op.attrs.model_fields.items()}
        return self.op.attrs.model_construct(**{**defaults, **self.fixed, **bound})


def wired(document: GraphDocument, find: FindOp) -> tuple[Node, ...]:
    """Return the nodes with their ops, all checked except shapes and dtypes; raises ``Unprocessable``."""
    names = [slot.name for slot in document.slots]
    faults = Faults()
    for i, name in enumerate(names):
        if name in names[:i]:
            faults.add(("inputs", i, "name"), "two inputs have this name", expected="each name once", got=name)
    outputs: dict[str, list[str]] = {name: [] for name in names}
    nodes, size, work = list[Node](), 0, 0
    for i, described in enumerate(document.nodes):
        at = ("nodes", i)
        if described.name in outputs:
            expected = "a different name for each node and input"
            faults.add((*at, "name"), "another part has this name", expected=expected, got=described.name)
            faults.check()
        op = _sent(described, _op_of(described.op, find, (*at, "op")))
        node = _wired(described, op, outputs, document.nodes[i:], at)
        outputs[described.name] = [slot.name for slot in op.outputs]
        nodes.append(node)
        size += sum(8 * int(np.prod(each.shape)) for each in node.sources.values() if isinstance(each, Fixed))
        work += WORK**op.depth
        if work > MAX_WORK:
            message = "the nodes are too much work; each derivation counts three times as much"
            raise wrong((*at, "op"), message, expected=f"at most {MAX_WORK}", got="more")
        if size > MAX_CONSTANTS:
            expected = f"at most {MAX_CONSTANTS} bytes in all, as float64"
            raise wrong((*at, "inputs"), "the constants are too large", expected=expected, got="more")
    faults.check()
    return tuple(nodes)


def outputs_of(document: GraphDocument, nodes: Sequence[Node]) -> Mapping[str, Value]:
    """Return the value of each output of the graph, in the order of the document.

    Raises ``Unprocessable`` for an output that no node computes, and for inputs and nodes that reach no output.
    """
    known = {node.name: [slot.name for slot in node.op.outputs] for node in nodes}
    values: dict[str, Value] = {}
    for name, reference in document.outputs.items():
        if reference.partition(".")[0] in {slot.name for slot in document.slots}:
            message = "an output is a value of a node"
            raise wrong(("outputs", name), message, expected=f"one of {', '.join(known)}", got=reference)
        values[name] = _value(reference, known, ("outputs", name))
    used = {value.node for value in values.values()} | {f".{value.name}" for value in values.values() if not value.node}
    for node in reversed(nodes):
        if node.name in used:
            used |= {value.node or f".{value.name}" for _, value in node.values()}
    for i, node in enumerate(nodes):
        if node.name not in used:
            message = f"node {node.name} reaches no output"
            raise wrong(("nodes", i), message, expected="nodes that an output needs", got=node.name)
    for i, slot in enumerate(document.slots):
        if f".{slot.name}" not in used:
            message = f"input {slot.name} reaches no output"
            raise wrong(("inputs", i), message, expected="inputs that a node uses", got=slot.name)
    return values


def _op_of(name: str, find: FindOp, at: Loc) -> Op:
    """Return the op of a node; raises ``Unprocessable``."""
    if name.partition(".")[0] == PREFIX:
        expected = "a registered or derived op; put the nodes of that graph (GET /v1/graphs/NAME) into this document"
        raise wrong(at, "a posted graph cannot be the op of a node", expected=expected, got=name)
    try:
        op = without_parameters(find(name))
    except NotFound as error:
        expected = "a registered op, or one that is derived from it, such as square.vjp"
        raise wrong(at, error.detail, expected=expected, got=name) from None
    if op.is_complex:
        expected = "an op of real numbers; compose complex ones in a page"
        raise wrong(at, "an op with complex numbers cannot be a node", expected=expected, got=name)
    return op


def _sent(described: GraphNode, op: Op) -> Op:
    """Return the op of a node without the optional inputs that the node does not have."""
    given = described.inputs
    names = [slot.name for slot in op.inputs][: len(given)] if isinstance(given, list) else given
    return variant_of(op, dict.fromkeys(names))


def _wired(described: GraphNode, op: Op, outputs: Mapping[str, list[str]], later: Sequence[GraphNode], at: Loc) -> Node:
    given = _by_name(described, op, at)
    sources = dict[str, Value | Fixed]()
    for slot in op.inputs:
        source, loc = given[slot.name]
        if isinstance(source, Constant):
            loc = (*loc, "constant")
            dtype = "bool" if slot.dtypes == (BOOL,) else _own_dtype(source.constant) or "float64"
            sources[slot.name] = Fixed(source.constant, decode(source.constant, dtype, loc).shape)
        else:
            sources[slot.name] = _value(source, outputs, loc, later)
    return Node(described.name, op, sources, *_attributes(described, op, (*at, "attrs")))


def _by_name(described: GraphNode, op: Op, at: Loc) -> Mapping[str, tuple[str | Constant, Loc]]:
    """Return the inputs of a node by the names of its op's, each with its location; raises ``Unprocessable``."""
    slots, faults = [slot.name for slot in op.inputs], Faults()
    what = f"op {described.op} of node {described.name}"
    if isinstance(described.inputs, list):
        if len(described.inputs) != len(slots):
            message, expected = f"{what} has {counted(len(slots), 'input')}", f"one for each of {', '.join(slots)}"
            raise wrong((*at, "inputs"), message, expected=expected, got=str(len(described.inputs)))
        return {
            name: (each, (*at, "inputs", i)) for i, (name, each) in enumerate(zip(slots, described.inputs, strict=True))
        }
    for name in described.inputs:
        if name not in slots:
            faults.add((*at, "inputs", name), f"{what} has no such input", expected=near(name, slots), got=name)
    for name in slots:
        if name not in described.inputs:
            expected, got = f"all of {', '.join(slots)}", ", ".join(described.inputs)
            faults.add((*at, "inputs"), f"{what} needs the input {name}", expected=expected, got=got)
    faults.check()
    return {name: (each, (*at, "inputs", name)) for name, each in described.inputs.items()}


def _own_dtype(constant: Any) -> str | None:
    found = cast("dict[str, Any]", constant).get("dtype") if isinstance(constant, dict) else None
    return found if isinstance(found, str) and found in DTYPES else None


def _value(reference: str, outputs: Mapping[str, list[str]], at: Loc, later: Sequence[GraphNode] = ()) -> Value:
    """Return the value that a reference names; raises ``Unprocessable``, also for a node that is defined ``later``."""
    name, _, output = reference.partition(".")
    if name not in outputs:
        for i, node in enumerate(later):
            if node.name == name:
                message = f"node {name} is defined later" if i else "a node cannot use its own output"
                expected = f"node {name} before this node" if i else near(name, outputs)
                raise wrong(at, message, expected=expected, got=reference)
        message = "no input of the graph, and no node before this one, has this name"
        raise wrong(at, message, expected=near(name, outputs), got=reference)
    of_node = outputs[name]
    if not of_node:
        if output:
            raise wrong(at, "an input of the graph has no outputs", expected=name, got=reference)
        return Value("", name)
    if output and output not in of_node:
        raise wrong(at, f"unknown output of node {name}", expected=near(output, of_node), got=reference)
    if not output and len(of_node) > 1:
        expected = f"one of {', '.join(f'{name}.{each}' for each in of_node)}"
        raise wrong(at, f"node {name} has several outputs", expected=expected, got=reference)
    return Value(name, output or of_node[0])


def _attributes(described: GraphNode, op: Op, at: Loc) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the attributes with values, and those that are attributes of the graph; raises ``Unprocessable``."""
    fields = op.attrs.model_fields
    bound = {name: value.attr for name, value in described.attrs.items() if isinstance(value, Bound)}
    given = {name: value for name, value in described.attrs.items() if not isinstance(value, Bound)}
    if unknown := [name for name in described.attrs if name not in fields]:
        expected = near(unknown[0], fields)
        message = f"unknown attribute of op {described.op} of node {described.name}"
        raise wrong((*at, unknown[0]), message, expected=expected, got=unknown[0])
    try:
        valid = op.attrs.model_validate(given)
    except ValidationError as error:
        raise unprocessable(entries(error.errors(include_url=False), fields, at)) from None
    fixed = {name: getattr(valid, name) for name in fields if name not in bound}
    if bound and isinstance(op, DerivedOp) and op.needs_linear and not set(bound) <= set(op.attrs.number_names()):
        name = next(iter(bound))
        message = "an attribute that decides whether there is a jvp cannot be the graph's"
        raise wrong((*at, name), message, expected="a value", got=bound[name])
    return fixed, bound
