"""Graphs of ops, traced from a Python function: the ops that it calls become the nodes of a document.

::

    log1pexp, safe_norm, matvec = map(client.op, ("log1pexp", "safe_norm", "matvec"))
    loss = client.compose(lambda a, x: log1pexp(safe_norm(matvec(a, x))))
    dx = loss.vjp({"a": a, "x": x}, wrt=["x"]).gradients["x"]

This module does no I/O.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast
from urllib.parse import quote

import numpy as np

from pullback import bodies
from pullback.calls import Call
from pullback.errors import BadArgument

Document: TypeAlias = dict[str, Any]
Operand: TypeAlias = "Value | int | float | np.ndarray[Any, Any] | list[Any]"
PATH = "/v1/graphs"
OUTPUT = "y"
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


class Value:
    """A value of the function that is composed: an input, or what an op returns.

    It has the operators ``+ - * / @``, for values of one shape and for numbers, ``-x`` and ``x.T``. Of an op with
    several outputs, ``value["w"]`` is one.
    """

    # NumPy's operators leave the work to those of this class.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, reference: str) -> None:
        """Take the graph, and the name in it."""
        self.graph, self.reference = graph, reference

    def __getitem__(self, output: str) -> "Value":
        """Return an output of the op."""
        if not isinstance(cast(object, output), str) or "." in self.reference:
            raise BadArgument(f"expected the name of an output of an op, got {output!r} of {self.reference}")
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

    @property
    def T(self) -> "Value":
        """The transpose of matrices."""
        return apply("transpose", (self,))


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
    given = [*inputs, *(named or {}).values()]
    graphs = {id(value.graph): value.graph for value in given if isinstance(value, Value)}
    if len(graphs) != 1:
        found = "none" if not graphs else "those of two"
        cure = "; outside of compose, call forward, vjp or another operation"
        raise BadArgument(f"op {op}: expected values of the function that is composed, got {found}{cure}")
    [graph] = graphs.values()
    if caller is not None:
        graph.callers.append(caller)
    if named is None:
        return graph.add(op, [_source(value) for value in inputs], attrs or {})
    return graph.add(op, {name: _source(value) for name, value in named.items()}, attrs or {})


def _source(value: Any) -> Any:
    if isinstance(value, Value):
        return value.reference
    if isinstance(value, np.ndarray | np.generic):
        return {"constant": cast("np.ndarray[Any, Any]", value).tolist()}
    return {"constant": value}


def traced(function: Callable[..., Any], summary: str, attrs: Mapping[str, Any] | None) -> Document:
    """Return the document of a function of values; raises ``BadArgument`` if it returns anything else."""
    document, _ = traced_calls(function)
    given = {"summary": summary, "attrs": dict(attrs or {})}
    return {**document, **{key: value for key, value in given.items() if value}}


def traced_calls(function: Callable[..., Any]) -> tuple[Document, list[Any]]:
    """Return the document of a function of values, and the callers that it notes; raises ``BadArgument``."""
    parameters = inspect.signature(function).parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    if not kinds or not kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        raise BadArgument(f"expected a function with named arguments, which are the inputs, got {function!r}")
    names = [parameter.name for parameter in parameters]
    graph = Graph(names)
    found = function(*(Value(graph, name) for name in names))
    outputs = cast("dict[Any, Any]", found) if isinstance(found, dict) else {OUTPUT: found}
    for name, value in outputs.items():
        if not isinstance(value, Value) or value.graph is not graph:
            expected = "a value, or a dictionary of values by name"
            raise BadArgument(f"{function!r}: expected it to return {expected}, got {type(value).__name__}")
        graph.document["outputs"][name] = value.reference
    return graph.document, graph.callers


def post(document: Document) -> Call[str]:
    """Request the op of a document; the result is its name."""
    return Call(PATH, _name, bodies.write_json(document, {}), may_repeat=True)


def document_of(name: str) -> Call[Document]:
    """Request the document of a graph."""
    return Call(f"{PATH}/{quote(name, safe='')}", dict, may_repeat=True)


def put(document: Document, name: str) -> Call[str]:
    """Request the op of a document again. The path has its name, by which a balancer finds the server that needs it."""
    return Call(f"{PATH}/{name}", _name, bodies.write_json(document, {}), may_repeat=True, puts=True)


def _name(contract: Mapping[str, Any]) -> str:
    return str(contract["name"])
