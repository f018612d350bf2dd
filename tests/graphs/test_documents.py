"""Documents that are refused: each error has its location, what was expected and what came."""

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from app.autodiff.admission import bind_example
from app.errors import PullbackError
from app.graphs.document import GraphDocument
from ops import Example
from tests.graphs.compositions import op_of

SQUARE: Mapping[str, Any] = {
    "inputs": ["x"],
    "nodes": [{"name": "y1", "op": "square", "inputs": {"x": "x"}}],
    "outputs": {"y": "y1"},
}


def node(**more: Any) -> dict[str, Any]:
    """Return the node of the document, changed."""
    return {"name": "y1", "op": "square", "inputs": {"x": "x"}, **more}


def changed(*nodes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the document with other nodes and fields."""
    fields: dict[str, Any] = {**deepcopy({**SQUARE}), **more}
    return {**fields, "nodes": list(nodes)} if nodes else fields


def nested(depth: int) -> Any:
    """Return a number in so many lists."""
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


def times(constant: Any) -> dict[str, Any]:
    """Return a node that multiplies x by a constant."""
    return node(op="multiply", inputs={"a": "x", "b": {"constant": constant}})


DOUBLING = [
    {"name": f"n{i}", "op": "concat", "inputs": dict.fromkeys("ab", f"n{i - 1}" if i else "x")} for i in range(40)
]
FIRST: tuple[str | int, ...] = ("nodes", 0)
# 9 times the work of a registered op each.
SECOND_ORDERS = [
    node(name=f"n{i}", op="square.vjp.vjp", inputs=dict.fromkeys(("x", "dy", "ddx"), "x")) for i in range(60)
]
# How pydantic writes errors.
LIBRARY = re.compile(
    r"pattern|Input should|String should|should have|validation|<class|valid (string|list|dict)|instance of"
)
ROWS = {"name": "x", "shape": ["...", "M"]}
OP_OF_ENTROPY = {"name": "c", "op": "softmax_cross_entropy", "inputs": {"logits": "x", "labels": "x"}}
# fmt: off
REFUSED: Mapping[str, tuple[Any, tuple[str | int, ...], str]] = {
    "a list": ([], (), "an object"),
    "nothing": ({}, ("inputs",), "inputs"),
    "a cycle": (changed(node(inputs={"x": "y1"})), (*FIRST, "inputs", "x"), "one of x"),
    "a later node": (changed(node(inputs={"x": "b"}), node(name="b")), (*FIRST, "inputs", "x"), "node b before"),
    "equal nodes": (changed(node(), node()), ("nodes", 1, "name"), "a different name"),
    "equal inputs": (changed(inputs=["x", "x"]), ("inputs", 1, "name"), "each name once"),
    "a node with the name of an input": (changed(node(name="x")), (*FIRST, "name"), "a different name"),
    "an unknown op": (changed(node(op="squar")), (*FIRST, "op"), "registered"),
    "a graph in a graph": (changed(node(op="graph.ab")), (*FIRST, "op"), "put the nodes of that graph"),
    "a gradient by another name": (changed(node(op="square.grad")), (*FIRST, "op"), "square.vjp"),
    "five derivations": (changed(node(op="square" + 5 * ".vjp")), (*FIRST, "op"), "derived"),
    "a number without constant": (changed(node(inputs={"x": 1.0})), (*FIRST, "inputs", "x"), '{"constant": 1.0}'),
    "a list without constant": (changed(node(inputs=[[1.0]])), (*FIRST, "inputs", 0), '{"constant": 1.0}'),
    "a constant with another field": (changed(node(inputs={"x": {"constant": 1.0, "dtype": "float32"}})),
     (*FIRST, "inputs", "x", "dtype"), "one of constant"),
    "text in place of inputs": (changed(node(inputs="x")), (*FIRST, "inputs"), "or a list in their order"),
    "a list for an attribute": (changed(node(attrs={"a": [1]})), (*FIRST, "attrs", "a"), '{"attr": "NAME"}'),
    "an attribute of two types": (changed(node(op="slice", attrs={"size": {"attr": "s"}}),
     node(name="b", op="scale_gradient", inputs=["y1"], attrs={"scale": {"attr": "s"}}), outputs={"y": "b"}),
     ("nodes", 1, "attrs", "scale"), "an integer"),
    "a size that is a formula": (changed(inputs=[{"name": "x", "shape": ["N+1"]}]), ("inputs", 0, "shape", 0),
     "a symbol"),
    "an unknown field of an input": (changed(inputs=[{"name": "x", "dtype": "f"}]), ("inputs", 0, "dtype"), "domain"),
    "no outputs": (changed(outputs={}), ("outputs",), "at least 1"),
    "an unknown input": (changed(node(inputs={"z": "x"})), (*FIRST, "inputs", "z"), "x"),
    "a missing input": (changed(node(inputs={})), (*FIRST, "inputs"), "x"),
    "an input with the name of a type": (changed(node(inputs={"int": 5})), (*FIRST, "inputs", "int"),
     '{"constant": 1.0}'),
    "a wrong name of an output": (changed(outputs={"Y 1": "y1"}), ("outputs", "Y 1"), "a letter"),
    "a node without a name": (changed({"op": "square", "inputs": ["x"]}), (*FIRST, "name"), "the field name"),
    "a name of 1 MB": (changed(node(name="a" * 1_000_000)), (*FIRST, "name"), "a letter"),
    "a million nodes": (changed(*[dict[str, Any]()] * 1_000_000), ("nodes",), "256"),
    "a deep constant": (changed(times(nested(150))), (*FIRST, "inputs", "b", "constant"), "rank"),
    "a constant of text": (changed(times("abc")), (*FIRST, "inputs", "b", "constant"), "number"),
    "a ragged constant": (changed(times([[1, 2], [3]])), (*FIRST, "inputs", "b", "constant", 1), "list of 2"),
    "a large constant": (changed(times([1.0] * 9000)), (*FIRST, "inputs"), "65536 bytes"),
    "shapes that differ": (changed(node(op="matmul", inputs={"a": "x", "b": {"constant": [1.0]}})),
     (*FIRST, "inputs", "b"), "K, N"),
    "a rank of 300": (changed(*[node(name=f"s{i}", op="sum",
     inputs={"x": f"s{i - 1}" if i else "x"}) for i in range(20)]) | {"outputs": {"y": "s19"}}, ("inputs", 0),
     "valid"),
    "constants that are too large together": (changed(*[times([1.0] * 3000) | {"name": f"n{i}"} for i in range(3)],
     outputs={"y": "n2"}), ("nodes", 2, "inputs"), "at most 65536 bytes in all"),
    "too much work": (changed(*SECOND_ORDERS), ("nodes", 56, "op"), "at most 512"),
    "rows of another rank": (changed(node(op="safe_norm"), node(name="b", op="add", inputs={"a": "x", "b": "y1"}),
     inputs=[ROWS], outputs={"y": "b"}), ("nodes", 1, "inputs", "b"), "that is"),
    "a node that reaches nothing": (changed(node(), node(name="b")), ("nodes", 1), "needs"),
    "an input that reaches nothing": (changed(inputs=["x", "z"]), ("inputs", 1), "uses"),
    "an output of no node": (changed(outputs={"y": "x"}), ("outputs", "y"), "y1"),
    "an unknown attribute": (changed(node(attrs={"q": 1})), (*FIRST, "attrs", "q"), "no names"),
    "a wrong attribute": (changed(node(op="sign", attrs={"mechanism": "z"})), (*FIRST, "attrs", "mechanism"), "'"),
    "a default out of bounds": (changed(node(op="slice", attrs={"size": {"attr": "s"}}), attrs={"s": -5}),
     ("attrs", "s"), "greater"),
    "dtypes that differ": (changed(OP_OF_ENTROPY, outputs={"y": "c"}), (*FIRST, "inputs", "labels"), "int32"),
    "two free ranks": (changed(node(), node(name="y2", inputs={"x": "z"}), inputs=["x", "z"],
     outputs={"y": "y1", "z": "y2"}), ("inputs", 1, "shape"), "for both"),
    "a domain without numbers": (changed(inputs=[{"name": "x", "domain": [3, 1]}]), ("inputs", 0), "valid"),
    "code": (changed(code="import os"), ("code",), "known name"),
    "a wrong example": (changed(examples=[{"name": "e", "inputs": {}}]), ("examples", 0, "inputs"), "all of x"),
}
# fmt: on


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_document_is_refused_with_its_cure(name: str) -> None:
    document, loc, expected = REFUSED[name]
    with pytest.raises(PullbackError) as refused:
        op_of(document)
    assert refused.value.status == 422
    [entry, *_] = refused.value.entries
    assert entry.loc == loc
    assert len({entry.loc for entry in refused.value.entries}) == len(refused.value.entries)
    assert not LIBRARY.search(str([entry.document() for entry in refused.value.entries]))
    assert expected in entry.expected


def test_equal_documents_have_one_name() -> None:
    one = GraphDocument.of(changed(doc="", inputs=["x"]))
    other = GraphDocument.of({key: SQUARE[key] for key in reversed(list(SQUARE))} | {"inputs": [{"name": "x"}]})
    assert one.name == other.name
    assert one.name != GraphDocument.of(changed(doc="y = x²")).name


def test_the_order_of_names_does_not_count() -> None:
    product = node(op="multiply", inputs={"a": "x", "b": {"constant": 2.0}})
    turned = node(op="multiply", inputs={"b": {"constant": 2.0}, "a": "x"})
    assert GraphDocument.of(changed(product)).name == GraphDocument.of(changed(turned)).name


def test_names_may_have_capital_letters_which_count() -> None:
    nodes = [node(name="P", op="matvec", inputs=["A", "x"]), node(name="p", inputs=["P"])]
    op = op_of(changed(*nodes, inputs=["A", "x"], outputs={"Y": "p", "y": "P"}))
    assert [slot.name for slot in (*op.inputs, *op.outputs)] == ["A", "x", "Y", "y"]


def test_outputs_keep_the_order_of_the_document() -> None:
    outputs = {"value": "y1", "slope": "y1", "again": "y1"}
    document = GraphDocument.of(changed(outputs=outputs))
    assert list(GraphDocument.read(document.canonical).outputs) == list(outputs)
    assert [slot.name for slot in op_of(changed(outputs=outputs)).outputs] == list(outputs)
    turned = GraphDocument.of(changed(outputs=dict(reversed(outputs.items()))))
    assert turned.name != document.name


def test_an_input_that_all_rows_use_leaves_no_independent_rows() -> None:
    """Even where it has as many rows as the other input."""
    roi_pool = node(op="roi_pool", inputs={"features": "f", "rois": "r"})
    inputs = [{"name": "f", "shape": ["N", "H", "W", "C"]}, {"name": "r", "shape": ["N", 5]}]
    assert op_of(changed(roi_pool, inputs=inputs, outputs={"y": "y1.pooled"})).batching == "none"


@pytest.mark.parametrize("order", [1, -1], ids=["the last", "the first"])
def test_one_use_of_an_input_that_is_differentiable_makes_it_so(order: int) -> None:
    nodes = [node(name="p", op="roi_pool", inputs={"features": "f", "rois": "r"}), node(name="s", inputs={"x": "r"})]
    inputs = [{"name": "f", "shape": ["N", "H", "W", "C"]}, {"name": "r", "shape": ["R", 5]}]
    op = op_of(changed(*nodes[::order], inputs=inputs, outputs={"y": "s", "z": "p.pooled"}))
    assert [slot.differentiable for slot in op.inputs] == [True, True]


def test_the_domain_of_an_input_is_what_all_uses_accept() -> None:
    uses = [node(name="l", op="log1pexp"), node(name="d", op="divide", inputs={"a": "l", "b": "x"})]
    assert op_of(changed(*uses, outputs={"y": "d"})).inputs[0].domain == (1.0, 4.0)


def test_a_size_that_a_node_computes_must_be_that_of_its_use() -> None:
    joined = node(op="concat", inputs={"a": "x", "b": "x"})
    op = op_of(
        changed(joined, node(name="b", op="add", inputs={"a": "y1", "b": "z"}), inputs=["x", "z"], outputs={"y": "b"})
    )
    assert bind_example(op, Example("four", {"x": [1.0, 2.0], "z": [1.0] * 4})).output_shapes == {"y": (4,)}
    with pytest.raises(PullbackError, match="another size"):
        bind_example(op, Example("three", {"x": [1.0, 2.0], "z": [1.0] * 3}))


def test_a_graph_that_grows_without_bounds_is_refused_before_it_runs() -> None:
    op = op_of(changed(*DOUBLING, outputs={"y": "n39"}))
    assert op.cost is not None
    assert op.sizes is not None
    dims: dict[str, Any] = {"...": (), "M": 2}
    assert op.cost({**dims, **op.sizes(dims)}) > 1 << 38
