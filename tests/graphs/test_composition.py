"""The op of a graph computes what its author would have composed in TensorFlow: bit for bit, in each mode."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.errors import OpFailed, Unprocessable
from app.graphs.document import GraphDocument
from app.graphs.graph_op import graph_op
from ops import MODES, Attrs, Op, Tensor
from tests.graphs.compositions import by_hand, op_of
from tests.ops.cases import REGISTRY, Case, Kind, answer, directions

pytestmark = pytest.mark.slow

log1pexp, safe_norm, sign, square = (REGISTRY.ops[name] for name in ("log1pexp", "safe_norm", "sign", "square"))


class StrengthAttrs(Attrs):
    """The attribute of the second composition."""

    strength: float = 0.25


def loss(a: Tensor, x: Tensor) -> Tensor:
    """Return log(1 + exp |a x|)."""
    return log1pexp.function(safe_norm.function(tf.matmul(a, x)))


def mixed(x: Tensor, z: Tensor, *, strength: Tensor) -> tuple[Tensor, Tensor]:
    """Return (sign x + 1/2) (2 x z), which is a derivative, and the gradient-scaled x of a node that is used twice."""
    steps = sign.function(x, mechanism="custom_gradient")
    scaled = REGISTRY.ops["scale_gradient"].function(x, scale=strength)
    same, cotangent = tf.identity(scaled), tf.identity(z)
    slopes = cotangent * 2 * same
    return scaled * (steps + tf.fill(tf.shape(steps), tf.constant(0.5, x.dtype))), slopes


LOSS: Mapping[str, Any] = {
    "inputs": ["a", "x"],
    "nodes": [
        {"name": "ax", "op": "matmul", "inputs": {"a": "a", "b": "x"}},
        {"name": "norm", "op": "safe_norm", "inputs": {"x": "ax"}},
        {"name": "loss", "op": "log1pexp", "inputs": {"x": "norm"}},
    ],
    "outputs": {"y": "loss"},
}
MIXED: Mapping[str, Any] = {
    "inputs": ["x", "z"],
    "nodes": [
        {"name": "steps", "op": "sign", "inputs": {"x": "x"}},
        {"name": "scaled", "op": "scale_gradient", "inputs": {"x": "x"}, "attrs": {"scale": {"attr": "strength"}}},
        {"name": "moved", "op": "add", "inputs": {"a": "steps", "b": {"constant": 0.5}}},
        {"name": "product", "op": "multiply", "inputs": {"a": "scaled", "b": "moved"}},
        {"name": "slopes", "op": "square.vjp", "inputs": {"x": "scaled", "dy": "z"}},
    ],
    "outputs": {"y": "product", "z_y": "slopes.dx"},
    "attrs": {"strength": 0.25},
}
HAND: Mapping[str, tuple[Mapping[str, Any], Callable[..., Any], type[Attrs]]] = {
    "loss": (LOSS, loss, Attrs),
    "mixed": (MIXED, mixed, StrengthAttrs),
}


IN_MODES = (("loss", "eager"), ("mixed", "eager"), ("mixed", "xla"), ("loss", "v1"))


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("name", "mode"),
    [("loss", "graph"), ("mixed", "graph"), *(pytest.param(*each, marks=pytest.mark.slow) for each in IN_MODES)],
)
def test_a_graph_is_the_composition_bit_for_bit(name: str, mode: Any) -> None:
    document, function, attrs = HAND[name]
    graph = op_of(document)
    hand = by_hand(graph, function, attrs)
    kinds: list[Kind] = ["gradients", "jvp", "hvp"]
    for dtype in ("float32", "float64") if mode == "graph" else ("float32",):
        points = [Case(op, op.examples[0]).point(dtype, mode) for op in (graph, hand)]
        along = directions(points[0], np.random.default_rng(3))
        for kind in kinds:
            order = 3 if kind == "gradients" and mode == "graph" else 2
            found, expected = (answer(point, kind, along, order) for point in points)
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert np.array_equal(found[key], value), (kind, key, dtype)


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_derived_op_is_derived_for_inputs_that_do_not_depend_on_each_other(mode: Any) -> None:
    """The gradient of a b for a is dy b, also where b is a²."""
    nodes = [
        {"name": "b", "op": "square", "inputs": {"x": "x"}},
        {"name": "slopes", "op": "multiply.vjp", "inputs": {"a": "x", "b": "b", "dy": "dy"}},
    ]
    op = op_of({"inputs": ["x", "dy"], "nodes": nodes, "outputs": {"y": "slopes.da"}})
    point = Case(op, op.examples[0]).point("float64", mode, {"x": [3.0, -2.0], "dy": [1.5, 0.5]})
    assert answer(point, "forward", {})["outputs/y"].tolist() == [13.5, 2.0]


def test_an_attribute_has_the_dtype_of_its_node() -> None:
    nodes = [
        {"name": "wide", "op": "cast_float64", "inputs": {"x": "x"}},
        {"name": "y", "op": "gradient_reversal", "inputs": {"x": "wide"}, "attrs": {"strength": {"attr": "strength"}}},
    ]
    op = op_of({"inputs": ["x"], "nodes": nodes, "outputs": {"y": "y"}, "attrs": {"strength": 0.5}})
    found = answer(
        Case(op, op.examples[0]).point("float32", "graph", {"x": [3.0]}), "vjp", {"cotangents": {"y": np.array([1.5])}}
    )
    assert found["gradients/x"].tolist() == [-0.75]


def test_the_text_of_a_graph_has_a_line_for_each_node() -> None:
    nodes = [
        {"name": "a", "op": "add", "inputs": ["x", {"constant": -0.5}]},
        {"name": "b", "op": "multiply", "inputs": {"a": {"constant": [1.0, 2.0]}, "b": "a"}},
        {"name": "c", "op": "scale_gradient", "inputs": ["b"], "attrs": {"scale": {"attr": "w"}}},
        {"name": "d", "op": "gradient_reversal", "inputs": ["c"], "attrs": {"mechanism": "stop_gradient"}},
    ]
    doc = op_of({"inputs": ["x"], "nodes": nodes, "outputs": {"y": "d"}}).doc
    assert doc == (
        "The nodes, in order:\n\n    a = add(x, -0.5)\n    b = multiply(a=constant, b=a)\n"
        '    c = scale_gradient(b, scale=w)\n    d = gradient_reversal(c, mechanism="stop_gradient")'
    )


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_an_error_of_a_node_names_it(mode: Any) -> None:
    def broken(x: Tensor) -> Tensor:
        raise ValueError("no such luck")

    def two(x: Tensor) -> Any:
        return x, x

    document = GraphDocument.of(
        {"inputs": ["x"], "nodes": [{"name": "n", "op": "f", "inputs": ["x"]}], "outputs": {"y": "n"}}
    )
    for function, said in ((broken, r"node n \(f\) failed: no such luck"), (two, r"node n \(f\): forward")):
        op = replace(square, name="f", function=function, attrs=Attrs)
        made = graph_op(document, {"f": op}.__getitem__)
        with pytest.raises(OpFailed, match=said):
            answer(Case(made, made.examples[0]).point(mode=mode), "forward", {})


def of_two(second: Op) -> Op:
    """Return the op of a graph: the square of x, and then an op of one input."""
    nodes = [{"name": "s", "op": "square", "inputs": ["x"]}, {"name": "n", "op": "second", "inputs": ["s"]}]
    document = GraphDocument.of({"inputs": ["x"], "nodes": nodes, "outputs": {"y": "n"}})
    return graph_op(document, {"square": square, "second": replace(second, name="second", attrs=Attrs)}.__getitem__)


@pytest.mark.parametrize("mode", MODES)
def test_a_missing_gradient_names_its_node(mode: Any) -> None:
    made = of_two(replace(square, function=tf.stop_gradient))
    with pytest.raises(OpFailed, match=r"wrong value for x: .* got None from node n \(second\) for its input x"):
        answer(Case(made, made.examples[0]).point(mode=mode), "vjp", {})


def _refused(y: Tensor) -> Tensor:
    """Return what TensorFlow refuses to reshape where it runs: [2] to [3]."""
    return tf.reshape(y, tf.shape(tf.concat([y, y[:1]], 0)))


@pytest.mark.parametrize("mode", MODES)
def test_what_tensorflow_raises_in_a_node_names_it(mode: Any) -> None:
    @tf.custom_gradient
    def late(x: Tensor) -> Any:
        return tf.identity(x), _refused

    for function, kind, error in ((_refused, "forward", Unprocessable), (late, "vjp", OpFailed)):
        made = of_two(replace(square, function=function))
        with pytest.raises((Unprocessable, OpFailed)) as caught:
            answer(Case(made, made.examples[0]).point(mode=mode), kind, {})
        found = caught.value
        assert mode == "xla" or isinstance(found, error)
        assert "node n (second)" in found.detail
        assert "node n (second)" in found.entries[0].message


def test_a_kernel_that_xla_lacks_is_told_with_its_node() -> None:
    made = of_two(replace(square, function=tf.math.special.dawsn))
    with pytest.raises(Unprocessable, match=r"node n \(second\): XLA has no kernel for Dawsn"):
        answer(Case(made, made.examples[0]).point(mode="xla"), "forward", {})


def test_work_without_memory_is_not_done_again_to_find_a_node() -> None:
    def huge(x: Tensor) -> Tensor:
        """Ask for a petabyte."""
        count = tf.cast(1e15 + tf.abs(tf.cast(tf.reduce_max(x), tf.float64)), tf.int64)
        return x + tf.cast(tf.reduce_sum(tf.fill([count], tf.constant(1, tf.int8))), x.dtype)

    made = of_two(replace(square, function=huge))
    with pytest.raises(OpFailed, match="allocating tensor"):
        answer(Case(made, made.examples[0]).point(mode="graph"), "forward", {})
    assert "with_names" not in vars(made)
