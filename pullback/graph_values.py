"""Values of a function that is composed: the ops that it applies to them become the nodes of a graph."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from pullback.errors import BadArgument

Document: TypeAlias = dict[str, Any]
Operand: TypeAlias = "Value | int | float | np.ndarray[Any, Any] | list[Any]"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True)
class Attribute:
    """An attribute of the graph: as a value of an attribute of an op, inside the function that is composed."""

    name: str


class Graph:
    """The graph that is traced."""

    def __init__(self, inputs: list[str]) -> None:
        """Start with the names of the inputs."""
        self.document: Document = {"inputs": inputs, "nodes": [], "outputs": {}}
        self.callers = list[Any]()
        # Nodes of compositions, of which not all need reach an output.
        self.inner = set[str]()
        self._names = set(inputs)

    def add(self, op: str, inputs: Any, attrs: Mapping[str, Any]) -> "Value":
        """Add a node, and return its value."""
        stem, number = _NOT_IN_NAMES.sub("_", op.lower())[:48], 1
        name = stem
        while name in self._names:
            number += 1
            name = f"{stem}_{number}"
        self._names.add(name)
        bound = {key: {"attr": value.name} if isinstance(value, Attribute) else value for key, value in attrs.items()}
        node = {"name": name, "op": op, "inputs": inputs, **({"attrs": bound} if bound else {})}
        self.document["nodes"].append(node)
        return Value(self, name)

    def prune(self) -> None:
        """Remove the nodes of compositions that reach no output."""
        used, kept = {_node_of(reference) for reference in self.document["outputs"].values()}, list[Any]()
        for node in reversed(self.document["nodes"]):
            if node["name"] in used or node["name"] not in self.inner:
                kept.insert(0, node)
                inputs: Any = node["inputs"]
                sources = cast("dict[str, Any]", inputs).values() if isinstance(inputs, dict) else inputs
                used |= {_node_of(source) for source in sources if isinstance(source, str)}
        self.document["nodes"] = kept


def _node_of(reference: str) -> str:
    return reference.partition(".")[0]


class Value:
    """A value of the function that is composed: an input, or what an op returns.

    It has the operators ``+ - * / @``, for values of one shape and for numbers, ``-x``, ``x**2`` and ``x.T``. Of an op
    with several outputs, ``value["w"]`` is one. What else Python has for numbers and arrays raises ``BadArgument``,
    which says what to write in its place.
    """

    # NumPy's operators leave the work to those of this class.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, reference: str) -> None:
        """Take the graph, and the name in it."""
        self.graph, self.reference = graph, reference

    def __getitem__(self, output: str) -> "Value":
        """Return an output of the op."""
        if not isinstance(cast(object, output), str) or "." in self.reference:
            expected = 'expected the name of an output of an op (for a part of an array, client.op("slice") is one)'
            raise BadArgument(f"{expected}, got {output!r} of {self.reference}")
        return Value(self.graph, f"{self.reference}.{output}")

    def __iter__(self) -> Iterator["Value"]:
        """Refuse: how many outputs the op has is known to the service alone."""
        raise BadArgument(f'{self.reference}: expected value["NAME"] for an output of an op, got an iteration')

    def __bool__(self) -> bool:
        """Refuse: a graph has no values while it is traced."""
        raise BadArgument(f"{self.reference} has no value while the function is traced: it cannot be a condition")

    def __add__(self, other: Operand) -> "Value":
        return apply("add", (self, other))

    def __radd__(self, other: Operand) -> "Value":
        return apply("add", (other, self))

    def __sub__(self, other: Operand) -> "Value":
        return apply("subtract", (self, other))

    def __rsub__(self, other: Operand) -> "Value":
        return apply("subtract", (other, self))

    def __mul__(self, other: Operand) -> "Value":
        return apply("multiply", (self, other))

    def __rmul__(self, other: Operand) -> "Value":
        return apply("multiply", (other, self))

    def __truediv__(self, other: Operand) -> "Value":
        return apply("divide", (self, other))

    def __rtruediv__(self, other: Operand) -> "Value":
        return apply("divide", (other, self))

    def __matmul__(self, other: Operand) -> "Value":
        return apply("matmul", (self, other))

    def __rmatmul__(self, other: Operand) -> "Value":
        return apply("matmul", (other, self))

    def __neg__(self) -> "Value":
        return apply("multiply", (self, -1))

    def __pow__(self, exponent: object) -> "Value":
        """Return the square."""
        if isinstance(exponent, int | float) and exponent == 2:  # noqa: PLR2004 - the only power that is an op
            return apply("square", (self,))
        raise self._refused(f"x**{exponent}", "x**2, a product such as x * x * x, or an op of the service")

    def __abs__(self) -> "Value":
        raise self._refused("abs(x)", "an op of the service, such as safe_norm for the length of vectors")

    def _refuse_operator(self, *_: object) -> "Value":
        raise self._refused("this operator of Python", "+, -, *, /, @, x**2 or an op of the service")

    __rpow__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __round__ = _refuse_operator

    def _refuse_conversion(self) -> int:
        raise BadArgument(f"{self.reference} has no length or number while the function is traced")

    __len__ = __int__ = __float__ = __index__ = _refuse_conversion

    def _compare(self, other: object) -> bool:
        raise self._refused("a comparison", "an op of the service: a value is not known while the function is traced")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compare
    __hash__ = object.__hash__

    @property
    def T(self) -> "Value":
        """The transpose of matrices."""
        return apply("transpose", (self,))

    def __getattr__(self, name: str) -> Any:
        """Refuse the methods of arrays, such as ``x.sum()``."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NoAttribute(str(self._refused(f"x.{name}", f'an op of the service, as by client.op("{name}")(x)')))

    def _refused(self, what: str, instead: str) -> BadArgument:
        return BadArgument(f"{self.reference}: {what} is not part of a graph of ops; write {instead}")


class NoAttribute(BadArgument, AttributeError):
    """A value of a function that is composed has no such attribute."""


def is_traced(inputs: Sequence[Any]) -> bool:
    """Return whether a function gets values, inside one that is composed."""
    return any(isinstance(value, Value) for value in inputs)


def apply(
    op: str,
    inputs: Sequence[Any],
    named: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
    caller: Any = None,
) -> Value:
    """Return the value of a call of an op inside the function that is composed; ``caller`` is noted in the graph.

    Raises ``BadArgument`` outside of one, and for values of two functions.
    """
    graph = graph_of([value for value in (*inputs, *(named or {}).values()) if isinstance(value, Value)], f"op {op}")
    if caller is not None:
        graph.callers.append(caller)
    if named is None:
        return graph.add(op, [source_of(value) for value in inputs], attrs or {})
    return graph.add(op, {name: source_of(value) for name, value in named.items()}, attrs or {})


def graph_of(values: Sequence[Value], what: str) -> Graph:
    """Return the graph of values; raises ``BadArgument``, about ``what`` uses them, for none and for those of two."""
    graphs = {id(value.graph): value.graph for value in values}
    if len(graphs) != 1:
        found = "none" if not graphs else "those of two"
        cure = "; outside of compose, call forward, vjp or another operation"
        raise BadArgument(f"{what}: expected values of the function that is composed, got {found}{cure}")
    [graph] = graphs.values()
    return graph


def source_of(value: Any) -> Any:
    """Return what a document has for a value, or for a constant."""
    if isinstance(value, Value):
        return value.reference
    if isinstance(value, np.ndarray | np.generic):
        return {"constant": cast("np.ndarray[Any, Any]", value).tolist()}
    return {"constant": value}
