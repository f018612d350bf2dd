"""Random graphs beside the same compositions in TensorFlow: every order from 0 to 3, bit for bit.

The values of a graph have known shapes while it is drawn, so that each op that is drawn next accepts its inputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.autodiff.absent import Absent
from ops import Tensor
from tests.graphs.compositions import by_hand, op_of
from tests.ops.cases import REGISTRY, Case, answer, directions

pytestmark = pytest.mark.slow

Shape = tuple[int, ...]
SHAPES: Sequence[Shape] = [(), (3,), (2, 3), (3, 3)]
MOST = 64
FEW, SMALL, MANY, LARGE = 6, 8, 60, 30


@dataclass
class Drawn:
    """A graph that is drawn: its inputs, its nodes, the shape of each value, and what TensorFlow calls for it."""

    inputs: dict[str, Shape]
    nodes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    shapes: dict[str, Shape] = field(default_factory=dict[str, Shape])
    calls: list[tuple[str, Callable[..., Tensor], list[Any]]] = field(default_factory=list[Any])

    def add(
        self, op: str, inputs: Sequence[Any], shape: Shape, call: Callable[..., Tensor], attrs: Mapping[str, Any]
    ) -> None:
        """Add a node whose output has this shape."""
        name = f"n{len(self.nodes)}"
        sources = [each if isinstance(each, str) else {"constant": each} for each in inputs]
        self.nodes.append({"name": name, "op": op, "inputs": sources, "attrs": dict(attrs)})
        self.shapes[name] = shape
        self.calls.append((name, call, list(inputs)))

    @property
    def outputs(self) -> list[str]:
        """The values that no node uses."""
        used = {source for node in self.nodes for source in node["inputs"] if isinstance(source, str)}
        return [node["name"] for node in self.nodes if node["name"] not in used]

    @property
    def document(self) -> dict[str, Any]:
        """The document, whose inputs are those that a node uses."""
        used = {source for node in self.nodes for source in node["inputs"] if isinstance(source, str)}
        inputs = [{"name": name, "shape": list(shape)} for name, shape in self.inputs.items() if name in used]
        return {"inputs": inputs, "nodes": self.nodes, "outputs": {f"y_{name}": name for name in self.outputs}}

    def composition(self, *inputs: Tensor) -> Any:
        """Return what TensorFlow computes for the inputs that are used."""
        values: dict[str, Tensor] = dict(zip((slot["name"] for slot in self.document["inputs"]), inputs, strict=True))
        for name, call, sources in self.calls:
            values[name] = call(*(values[each] if isinstance(each, str) else each for each in sources))
        found = [values[name] for name in self.outputs]
        return found[0] if len(found) == 1 else tuple(found)


def page(name: str, **attrs: Any) -> Callable[..., Tensor]:
    """Return the function of a page with these attributes; all of them are given."""
    op = REGISTRY.ops[name]
    values = op.attrs(**attrs)

    def call(*xs: Tensor) -> Tensor:
        numbers = {key: tf.constant(value, xs[0].dtype) for key, value in values.numbers().items()}
        return op.function(*xs, **values.static(), **numbers)

    return call


def filled(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a function of two tensors, the second perhaps a number."""

    def call(a: Tensor, b: Any) -> Tensor:
        return function(a, b if isinstance(b, tf.Tensor) else tf.fill(tf.shape(a), tf.constant(b, a.dtype)))

    return call


def squared_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """Return the vjp of square, in copies of x and dy, as ``tf.gradients`` computes it in a graph."""
    # In this order: that of the operations decides that of the terms of a sum of gradients.
    same, cotangent = tf.identity(x), tf.identity(dy)
    dx: Any = tf.gradients([page("square")(same)], [same], [cotangent])[0]
    return dx


UNARY: Mapping[str, Mapping[str, Any]] = {
    "log1pexp": {},
    "log1pexp2": {},
    "square": {},
    "sign": {},
    "round_ste": {},
    "surrogate": {},
    "scale_gradient": {"scale": 0.5},
    "gradient_reversal": {"strength": 2.0},
}
# Not tf.multiply: TensorFlow names its operation in another way, and simplifies a graph in the order of names.
BINARY = {name: page(name) for name in ("add", "subtract", "multiply")}


@st.composite
def graphs(draw: Any, most: int) -> Drawn:
    """Draw a graph of up to ``most`` nodes."""
    drawn = Drawn({f"x{i}": draw(st.sampled_from(SHAPES)) for i in range(draw(st.integers(1, 3)))})
    drawn.shapes |= drawn.inputs
    for _ in range(draw(st.integers(1, most))):
        names = list(drawn.shapes)
        # Newer values are likelier, so that graphs are deep.
        back: int = draw(st.integers(0, 3))
        x = names[-1 - min(back, len(names) - 1)]
        shape = drawn.shapes[x]
        kinds = ["unary", "unary", "binary", "constant", "vjp"]
        kinds += ["sum", "mean", "safe_norm", "concat", "slice", "flatten"] if shape else []
        kinds += ["transpose", "reshape"] if len(shape) > 1 else []
        kinds += ["matmul", "matvec"] if shape == (3, 3) else []
        _add(draw, drawn, draw(st.sampled_from(kinds)), x, shape)
    return drawn


def _add(draw: Any, drawn: Drawn, kind: str, x: str, shape: Shape) -> None:
    alike = [name for name, other in drawn.shapes.items() if other == shape]
    other = draw(st.sampled_from(alike))
    match kind:
        case "unary":
            op = draw(st.sampled_from(list(UNARY)))
            drawn.add(op, [x], shape, page(op, **UNARY[op]), UNARY[op])
        case "binary":
            op = draw(st.sampled_from(list(BINARY)))
            drawn.add(op, [x, other], shape, BINARY[op], {})
        case "constant":
            op, number = draw(st.sampled_from([*BINARY, "divide"])), draw(st.sampled_from([0.5, -1.25, 2.0]))
            drawn.add(op, [x, number], shape, filled(page(op)), {})
        case "vjp":
            drawn.add("square.vjp", [x, other], shape, squared_vjp, {})
        case "matmul":
            drawn.add("matmul", [x, other], shape, page("matmul"), {})
        case "matvec":
            of = draw(st.sampled_from([name for name, of in drawn.shapes.items() if of[-1:] == (3,)]))
            drawn.add("matvec", [x, of], drawn.shapes[of], page("matvec"), {})
        case _:
            _add_reshaped(drawn, kind, x, other)


def _add_reshaped(drawn: Drawn, kind: str, x: str, other: str) -> None:
    shape = drawn.shapes[x]
    count, attrs = int(np.prod(shape)), dict[str, Any]()
    match kind:
        case "concat" if count <= MOST:
            inputs, result = [x, other], (*shape[:-1], 2 * shape[-1])
        case "slice":
            inputs, result, attrs = [x], (*shape[:-1], 1), {"begin": shape[-1] - 1, "size": 1}
        case "transpose":
            inputs, result = [x], (*shape[:-2], shape[-1], shape[-2])
        case "reshape":
            inputs, result, attrs = [x], (count, 1), {"rows": count, "columns": 1}
        case "sum" | "mean" | "safe_norm":
            inputs, result = [x], shape[:-1]
        case _:
            kind, inputs, result = "flatten", [x], (count,)
    drawn.add(kind, inputs, result, page(kind, **attrs), attrs)


def compare(drawn: Drawn, dtype: str) -> None:
    """Compare a graph with its composition at random points."""
    graph = op_of(drawn.document)
    hand = by_hand(graph, drawn.composition)
    rng = np.random.default_rng(len(drawn.nodes))
    inputs = {slot.name: rng.uniform(-2, 2, [int(n) for n in slot.shape]) for slot in graph.inputs}
    points = [Case(op, graph.examples[0]).point(dtype, "graph", inputs) for op in (graph, hand)]
    along = directions(points[0], rng)
    for order in (1, 3):
        found, expected = (answer(point, "gradients", along, order) for point in points)
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            same = found[key] == value if isinstance(value, Absent) else same_bits(found[key], value)
            assert same, (key, drawn.document)


def same_bits(found: Any, value: Any) -> bool:
    """Return whether two arrays have the same bits, except for the payload of NaN."""
    return found.dtype == value.dtype and np.array_equal(
        found.astype(np.float64), value.astype(np.float64), equal_nan=True
    )


ALL: Any = list(HealthCheck)
few = settings(max_examples=FEW, deadline=None, derandomize=True, suppress_health_check=ALL)


@few
@given(graphs(SMALL))
def test_a_random_graph_is_the_composition(drawn: Drawn) -> None:
    compare(drawn, "float32")


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@settings(max_examples=MANY, deadline=None, suppress_health_check=ALL, phases=[Phase.generate])
@given(drawn=graphs(LARGE))
def test_large_random_graphs_are_the_compositions(drawn: Drawn, dtype: str) -> None:
    compare(drawn, dtype)
