"""The derivatives of the ops that are glue: each order to 4, in each mode, as eager mode computes them."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_dynamic_update_slice

from app.autodiff.derived import derived
from app.runtime.calculus import Graph, Tapes
from ops import MODES, Example
from tests.ops.cases import REGISTRY, Case, answer

GLUE = (
    "add",
    "cast_float64",
    "concat",
    "divide",
    "flatten",
    "matmul",
    "matvec",
    "mean",
    "multiply",
    "reshape",
    "slice",
    "subtract",
    "sum",
    "transpose",
)
PATHS = [path for order in range(1, 5) for path in product(("vjp", "jvp"), repeat=order)]
TWO, THREE, FOUR = ("vjp", "vjp"), ("vjp", "jvp", "vjp"), ("jvp", "vjp", "vjp", "jvp")
# XLA has kernels of its own.
QUICK: list[Any] = [(THREE, "xla"), (TWO, "v1"), (TWO, "graph"), pytest.param(FOUR, "xla", marks=pytest.mark.slow)]
ALL = [pytest.param(path, mode, marks=pytest.mark.thorough) for path in PATHS for mode in MODES if mode != "eager"]
# The parts of the axes that concat joins and slice takes, empty ones too.
SIZES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("concat", {"a": np.zeros((2, 0)), "b": np.ones((2, 3))}, {}),
    ("concat", {"a": np.zeros((0, 1)), "b": np.ones((0, 3))}, {}),
    ("concat", {"a": [1.0], "b": [2.0, 3.0]}, {}),
    ("slice", {"x": np.zeros((0, 3))}, {"begin": 1, "size": 2}),
]


def results(name: str, path: Sequence[str], mode: Any) -> dict[str, Any]:
    """Return the outputs of an op after a path of derivations, which are derivatives of the op."""
    op = derived(REGISTRY.ops[name], ".".join((name, *path)), list(path))
    case = Case(op, op.examples[0])
    return answer(case.point(case.exact, mode), "forward", {})


def agree(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Compare results, each an array or the reason why there is none."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, str):
            assert found[key] == value, key
        else:
            assert np.allclose(found[key], value, rtol=1e-12, atol=1e-12), key


@pytest.mark.share(2)
@pytest.mark.parametrize(("path", "mode"), [*QUICK, *ALL])
@pytest.mark.parametrize("name", GLUE)
def test_every_order_is_that_of_eager_mode(name: str, path: Sequence[str], mode: Any) -> None:
    expected, found = (results(name, path, each) for each in ("eager", mode))
    agree(found, expected)


@pytest.mark.parametrize(("name", "inputs", "attrs"), SIZES)
def test_higher_orders_of_parts_and_empty_tensors(name: str, inputs: Any, attrs: Any) -> None:
    example = Example("other", {key: np.asarray(x).tolist() for key, x in inputs.items()}, attrs)
    case = Case(REGISTRY.ops[name], example)
    arrays = {key: np.asarray(x, np.float64) for key, x in inputs.items()}
    expected, found = (answer(case.point("float64", mode, arrays), "gradients", {}, 3) for mode in ("eager", "xla"))
    agree(found, expected)


def test_an_updated_part_has_the_gradients_of_all_its_inputs() -> None:
    """A slice's gradient under XLA updates zeros; another caller of the kernel may update any tensor."""
    dy = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

    @tf.function(jit_compile=True)
    def gradients(x: tf.Tensor, part: tf.Tensor, begin: tf.Tensor) -> Any:
        y = xla_dynamic_update_slice(x, part, begin)
        return Graph().pullback([y], [x, part])([dy])

    dx, dpart = gradients(tf.zeros((2, 3)), tf.ones((1, 2)), tf.constant([1, 1]))
    assert dx.numpy().tolist() == [[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]]
    assert dpart.numpy().tolist() == [[5.0, 6.0]]


def test_a_compiled_function_of_a_page_has_a_second_order_in_eager_mode() -> None:
    @tf.function(jit_compile=True)
    def compiled(x: tf.Tensor) -> tf.Tensor:
        return tf.square(tf.slice(x, [1], [2]))

    x = tf.constant([1.0, 2.0, 3.0])
    with Tapes(2) as tapes:
        tapes.watch([x])
        [dx] = tapes.pullback([compiled(x)], [x])(None)
        assert dx is not None
        [ddx] = tapes.pullback([dx], [x])(None)
    assert ddx is not None
    assert ddx.numpy().tolist() == [0.0, 2.0, 2.0]
