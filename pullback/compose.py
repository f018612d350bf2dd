"""Graphs of ops, traced from a Python function: the ops that it calls become the nodes of a document.

::

    log1pexp, safe_norm, matvec = map(client.op, ("log1pexp", "safe_norm", "matvec"))
    loss = client.compose(lambda a, x: log1pexp(safe_norm(matvec(a, x))))
    dx = loss.vjp({"a": a, "x": x}, wrt=["x"]).gradients["x"]

This module does no I/O.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pullback import bodies
from pullback.calls import Call, segment
from pullback.errors import BadArgument
from pullback.graph_values import Document, Graph, Value, graph_of, source_of

PATH = "/v1/graphs"
OUTPUT = "y"


def apply_document(
    document: Document, inputs: Sequence[Any], given: Mapping[str, Any] | None = None, caller: Any = None
) -> Any:
    """Return the value of a call of a composition inside the function that is composed: its nodes become nodes of both.

    ``given`` are inputs and attributes by name. Of several outputs it returns a dictionary. Raises ``BadArgument`` for
    inputs and attributes that the composition does not have, and outside of such a function.
    """
    names: list[str] = [each if isinstance(each, str) else each["name"] for each in document["inputs"]]
    by_name = {name: value for name, value in (given or {}).items() if name in names}
    if (inputs and by_name) or len(inputs or by_name) != len(names):
        got = f"{len(inputs)} by position and {len(by_name)} by name"
        raise BadArgument(f"composition: expected its inputs ({', '.join(names)}), by position or by name, got {got}")
    operands = by_name or dict(zip(names, inputs, strict=True))
    values = {name: value if isinstance(value, Value) else source_of(value) for name, value in operands.items()}
    chosen = _attributes(document, {name: value for name, value in (given or {}).items() if name not in by_name})
    graph = graph_of([value for value in values.values() if isinstance(value, Value)], "composition")
    if caller is not None:
        graph.callers.append(caller)
    for node in document["nodes"]:
        sources = node["inputs"]
        if isinstance(sources, dict):
            moved: Any = {name: _moved(source, values) for name, source in cast("dict[str, Any]", sources).items()}
        else:
            moved = [_moved(source, values) for source in sources]
        attrs = {name: _chosen(value, chosen) for name, value in node.get("attrs", {}).items()}
        made = graph.add(node["op"], moved, {name: value for name, value in attrs.items() if value is not None})
        values[node["name"]] = made
        graph.inner.add(made.reference)
    found: dict[str, Any] = {name: _value_of(reference, values) for name, reference in document["outputs"].items()}
    return found if len(found) > 1 else next(iter(found.values()))


def _attributes(document: Document, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of a composition; those that are not given, and have no default, are left to the nodes."""
    bound: list[str] = [
        value["attr"]
        for node in document["nodes"]
        for value in node.get("attrs", {}).values()
        if isinstance(value, dict)
    ]
    defaults: dict[str, Any] = document.get("attrs", {})
    for name in given:
        if name not in bound:
            known = ", ".join(dict.fromkeys(bound)) or "none"
            raise BadArgument(f"composition: unknown attribute {name!r}: expected one of its attributes ({known})")
    for name in dict.fromkeys(bound):
        if bound.count(name) > 1 and name not in given and name not in defaults:
            raise BadArgument(f"composition: expected a value of attribute {name}, which several of its ops share")
    return {**defaults, **given}


def _chosen(value: Any, chosen: Mapping[str, Any]) -> Any:
    return chosen.get(cast("dict[str, str]", value)["attr"]) if isinstance(value, dict) else value


def _moved(source: Any, values: Mapping[str, Any]) -> Any:
    """Return the source of a node of a composition in the graph that calls it."""
    if isinstance(source, dict):
        return cast("dict[str, Any]", source)
    found = _value_of(source, values)
    return found.reference if isinstance(found, Value) else found


def _value_of(reference: str, values: Mapping[str, Any]) -> Any:
    name, _, output = reference.partition(".")
    return values[name][output] if output else values[name]


def traced(function: Callable[..., Any], summary: str, attrs: Mapping[str, Any] | None) -> Document:
    """Return the document of a function of values; raises ``BadArgument`` if it returns anything else."""
    document, _ = traced_calls(function)
    given = {"summary": summary, "attrs": dict(attrs or {})}
    return {**document, **{key: value for key, value in given.items() if value}}


def traced_calls(function: Callable[..., Any]) -> tuple[Document, list[Any]]:
    """Return the document of a function of values, and the callers that it notes; raises ``BadArgument``.

    Arguments with defaults keep these; the others are the inputs.
    """
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    kinds = {parameter.kind for parameter in parameters}
    if not kinds or not kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        raise BadArgument(f"expected a function with named arguments, which are the inputs, got {function!r}")
    names = [parameter.name for parameter in parameters]
    graph = Graph(names)
    found = function(*(Value(graph, name) for name in names))
    outputs = cast("dict[Any, Any]", found) if isinstance(found, dict) else {OUTPUT: found}
    for name, value in outputs.items():
        if not isinstance(value, Value) or value.graph is not graph:
            expected = 'a value, or a dictionary of values by name, such as {"value": y, "slope": dy}'
            raise BadArgument(f"{function!r}: expected it to return {expected}, got a {type(value).__name__}")
        graph.document["outputs"][name] = value.reference
    graph.prune()
    return graph.document, graph.callers


def post(document: Document) -> Call[str]:
    """Request the op of a document; the result is its name."""
    return Call(PATH, _name, bodies.write_json(document, {}), may_repeat=True)


def document_of(name: str) -> Call[Document]:
    """Request the document of a graph."""
    return Call(f"{PATH}/{segment(name)}", dict, may_repeat=True)


def put(document: Document, name: str) -> Call[str]:
    """Request the op of a document again. The path has its name, by which a balancer finds the server that needs it."""
    return Call(f"{PATH}/{segment(name)}", _name, bodies.write_json(document, {}), may_repeat=True, verb="PUT")


def _name(contract: Mapping[str, Any]) -> str:
    return str(contract["name"])
