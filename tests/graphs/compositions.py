"""Graphs beside the same compositions, written by hand in TensorFlow as an author would."""

from collections.abc import Mapping
from typing import Any

from app.autodiff.derived import derived
from app.errors import NotFound
from app.graphs.document import GraphDocument
from app.graphs.graph_op import GraphOp, graph_op
from ops import Attrs, Function, Op
from tests.ops.cases import REGISTRY


def find(name: str) -> Op:
    """Return a registered or derived op."""
    registered, *derivations = name.split(".")
    if registered not in REGISTRY.ops:
        raise NotFound(f"unknown op {registered}")
    return derived(REGISTRY.ops[registered], name, derivations)


def op_of(document: Mapping[str, Any]) -> GraphOp:
    """Return the op of a document."""
    return graph_op(GraphDocument.of(document), find)


def by_hand(op: GraphOp, function: Function, attrs: type[Attrs] = Attrs) -> Op:
    """Return the op that an author would write, with the contract of a graph."""
    return Op(
        name="by_hand",
        summary="",
        doc="",
        function=function,
        inputs=op.inputs,
        outputs=op.outputs,
        mechanism="composition",
        source="",
        examples=op.examples,
        attrs=attrs,
        claim=op.claim,
        modes=op.modes,
        batching=op.batching,
    )
