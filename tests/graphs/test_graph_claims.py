"""What the gradient of a graph claims: the checks find it right, whatever its nodes claim, and find mistakes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.graphs.document import GraphDocument
from app.graphs.graph_op import graph_op
from ops import Op, custom_gradient
from pullback.gradcheck.verdict import worst_verdict
from tests.gradcheck.checking import report
from tests.graphs.compositions import find, op_of
from tests.ops.cases import REGISTRY


def after(*ops: str, attrs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the document of ops of x, one after the other, times x; the attributes are those of the first."""
    nodes: list[dict[str, Any]] = []
    for i, op in enumerate(ops):
        nodes.append({"name": f"n{i}", "op": op, "inputs": {"x": f"n{i - 1}" if i else "x"}})
    nodes[0]["attrs"] = attrs or {}
    last = {"name": "last", "op": "multiply", "inputs": {"a": "x", "b": nodes[-1]["name"]}}
    return {"inputs": ["x"], "nodes": [*nodes, last], "outputs": {"y": "last"}}


def checked(op: Op, checks: Sequence[str]) -> dict[str, Any]:
    """Return the worst verdict of each of these checks, which have several findings."""
    found = report(op, checks=tuple(checks), modes=("graph",), dtypes=("float64",))
    verdicts: dict[str, list[Any]] = {}
    for entry in found["checks"]:
        verdicts.setdefault(entry["check"], []).append(entry["verdict"])
    return {check: worst_verdict(found) for check, found in verdicts.items() if set(found) != {"skipped"}}


EIGENVALUES: Mapping[str, Any] = {
    "inputs": ["a"],
    "nodes": [
        {"name": "e", "op": "self_adjoint_eig", "inputs": {"a": "a"}, "attrs": {"broadening": 0.5}},
        {"name": "p", "op": "log1pexp", "inputs": {"x": "e.w"}},
    ],
    "outputs": {"y": "p", "v": "e.v"},
    "examples": [{"name": "two", "inputs": {"a": [[1.0, 0.25], [0.25, -0.5]]}}],
}
SLOPE: Mapping[str, Any] = {
    "inputs": ["x", "z"],
    "nodes": [
        {"name": "s", "op": "sign", "inputs": {"x": "x"}},
        {"name": "p", "op": "log1pexp.vjp", "inputs": {"x": "z", "dy": "s"}},
    ],
    "outputs": {"y": "p.dx"},
}


@pytest.mark.share(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "first", "second"),
    [
        (after("log1pexp", "square"), "Derivative", "Derivative"),
        (after("round_ste", "log1pexp"), "Surrogate", "Formula"),
        (after("clip_gradient", "square"), "Formula", "Formula"),
        pytest.param(after("log1pexp2", "square"), "Derivative", "Formula", marks=pytest.mark.thorough),
        pytest.param(EIGENVALUES, "Formula", "Formula", marks=pytest.mark.thorough),
        (SLOPE, "Formula", "Formula"),
    ],
)
def test_checks_find_right_what_the_nodes_claim(document: Mapping[str, Any], first: str, second: str) -> None:
    op = op_of(document)
    claim = op.claim(op.attrs())
    assert (type(claim.first).__name__, type(claim.second).__name__) == (first, second)
    checks = ["value", "derivative", "second"] if op.reference else ["derivative", "second"]
    assert checked(op, checks) == dict.fromkeys(checks, "pass")


def test_one_node_that_is_not_linear_in_its_cotangent_makes_the_graph_so() -> None:
    op = op_of(after("square", "clip_gradient"))
    assert not op.claim(op.attrs()).linear


def test_checks_find_a_planted_mistake_of_a_node() -> None:
    square = REGISTRY.ops["square"]
    wrong = replace(square, function=custom_gradient(lambda x: x * x, lambda x, dy: 2.1 * x * dy))
    document = GraphDocument.of(after("log1pexp", "square"))
    op = graph_op(document, lambda name: wrong if name == "square" else find(name))
    assert checked(op, ["derivative"]) == {"derivative": "fail"}


def finite_in_float16(op: Op) -> str:
    """Return the verdict of check finite in float16."""
    found = report(op, checks=("finite",), modes=("graph",), dtypes=("float16",))
    return found["verdict"]


def test_a_cotangent_that_overflows_between_nodes_is_no_fault() -> None:
    """Where |a x| is 1e-4, the product for a is small, and that for a x is too large for float16."""
    nodes = [
        {"name": "ax", "op": "matmul", "inputs": {"a": "a", "b": "x"}},
        {"name": "norm", "op": "safe_norm", "inputs": {"x": "ax"}},
        {"name": "loss", "op": "log1pexp", "inputs": {"x": "norm"}},
    ]
    op = op_of({"inputs": ["a", "x"], "nodes": nodes, "outputs": {"y": "loss"}})
    assert finite_in_float16(op) == "pass"


def test_a_node_that_overflows_inside_is_found() -> None:
    """The gradient exp(x) exp(-x) is infinite where exp(x) is, in directions of any size."""
    same = replace(
        REGISTRY.ops["square"],
        function=custom_gradient(tf.identity, lambda x, dy: dy * (tf.exp(x) * tf.exp(-x))),
        reference=np.asarray,
    )
    document = GraphDocument.of(after("square"))
    assert finite_in_float16(graph_op(document, lambda name: same if name == "square" else find(name))) == "fail"
