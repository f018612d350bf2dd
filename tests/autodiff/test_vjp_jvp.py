"""Hv, the tangents of a vjp, against the whole Hessian: for every op, in every mode, symmetric or not."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from app.autodiff import derivatives, matrices
from app.autodiff.absent import Absent
from app.autodiff.binding import bind
from app.autodiff.point import Point
from app.errors import Unprocessable
from app.tensors.json import decode
from ops import MODES, Example, Mode, Op, discover
from tests.conftest import ROOT

OPS = discover([ROOT / "tests" / "http" / "plugins"]).ops
EPS = np.finfo(np.float64).eps
# A sum of n products has n roundings and those of its factors; both ways to the Hessian are sums of a few dozen
# operations at most.
ROUNDINGS = 100
CASES = [
    pytest.param(op, example, id=f"{op.name}-{example.name}")
    for op in OPS.values()
    if op.name not in ("endless", "sleepy") and any(op.is_differentiable(slot, "float64") for slot in op.inputs)
    for example in op.examples
    # An op without some of its optional inputs, or with parameters, is another op (``derived.variant_of``).
    if example.inputs.keys() == {slot.name for slot in op.inputs} and not op.parameters
]


def point(op: Op, example: Example, mode: Mode) -> Point:
    dtype = "float64" if "float64" in op.dtypes else None
    where = {"mode": mode, "device": "/device:CPU:0", "max_elements": 1 << 20}
    return bind(op, example.inputs, example.attrs, dtype, decode, **where)


def numbers(rng: np.random.Generator, at: Point, names: Any, shapes: Any) -> dict[str, Any]:
    return {name: rng.normal(size=shapes[name]).astype(at.inputs[next(iter(at.inputs))].dtype) for name in names}


def largest(arrays: dict[str, Any]) -> float:
    return max((np.abs(array).max(initial=0) for array in arrays.values()), default=0)


def tangent(at: Point, a: str, cotangents: dict[str, Any], vector: dict[str, Any]) -> Any:
    """Return the tangent of the gradient in ``a`` along a vector.

    Decompositions take seconds to trace: xla and v1 trace one program for all inputs, and the other vectors are zeros.
    The choice of inputs is the same in all modes: graph covers it, as do the other ops in xla and v1.
    """
    live = at.spec.inputs.differentiable
    if at.spec.mode in ("graph", "eager") or at.spec.batching != "none":
        return derivatives.vjp_jvp(at, [a], cotangents, vector).run()[a]
    vectors = {name: vector.get(name, np.zeros_like(at.inputs[name])) for name in live}
    return derivatives.vjp_jvp(at, live, cotangents, vectors).run()[a]


# With attributes, integers, several inputs and outputs, and an asymmetric second order. XLA compiles a decomposition
# for seconds, as other tests do.
OF_EACH_KIND = ("square", "gradient_reversal", "surrogate", "softmax_cross_entropy", "affine", "squares", "skewed")


def is_needed(op: Op, example: Example, mode: Mode) -> bool:
    """Return whether a mode runs an op at an example: graph runs all, the others show that they do the same.

    conv_eig is a convolution around the decomposition of self_adjoint_eig, which shows both in half the time.
    """
    is_other = mode in ("xla", "v1") and op.name not in OF_EACH_KIND
    is_first = mode == "graph" or example is op.examples[0]
    return mode in op.modes and is_first and not is_other and op.name != "conv_eig"


IN_MODES = [
    pytest.param(*case.values, mode, id=f"{case.id}-{mode}", marks=pytest.mark.thorough if mode != "graph" else ())
    for case in CASES
    for mode in MODES
    if is_needed(*case.values, mode)
]


@pytest.mark.share(4)
@pytest.mark.parametrize(("op", "example", "mode"), IN_MODES)
def test_each_tangent_is_a_row_of_the_hessian_times_the_vector(op: Op, example: Example, mode: Mode):
    at, rng = point(op, example, mode), np.random.default_rng(7)
    live = at.spec.inputs.differentiable
    cotangents = numbers(rng, at, at.spec.outputs.differentiable, derivatives.output_shapes(at))
    hessian = matrices.hessian(point(op, example, "graph"), live, cotangents, lambda: None)
    for a, b in product(live, live):
        vector = numbers(rng, at, [b], {b: at.inputs[b].shape})
        found = tangent(at, a, cotangents, vector)
        block = hessian[a][b]
        if isinstance(block, Absent):
            assert isinstance(found, Absent) or not np.any(found)
            continue
        wanted = np.tensordot(block, vector[b], vector[b].ndim)
        # A product that is 0 one way may be a cancellation of terms as large as its factors the other way.
        scale = np.tensordot(np.abs(block), np.abs(vector[b]), vector[b].ndim) + largest(cotangents) * largest(vector)
        got = np.zeros_like(wanted) if isinstance(found, Absent) else found
        assert got.shape == at.inputs[a].shape
        plain = np.isfinite(wanted)
        np.testing.assert_array_less(np.abs(got - wanted)[plain], (ROUNDINGS * EPS * scale)[plain])


def test_an_asymmetric_second_order_is_applied_by_rows():
    op = OPS["skewed"]
    at, eye = point(op, op.examples[0], "graph"), np.eye(3)
    rows = [derivatives.vjp_jvp(at, ["x"], None, {"x": e}).run()["x"] for e in eye]
    # ∂g_x[a]/∂x[b] = 3 a + b: the tangent along e_b is column b, where the hvp's is row b.
    np.testing.assert_array_equal(rows, [[0, 3, 6], [1, 4, 7], [2, 5, 8]])
    products = [derivatives.hvp(at, ["x"], None, {"x": e}, batched=False).run()["x"] for e in eye]
    np.testing.assert_array_equal(products, np.transpose(rows))


def test_a_tangent_of_another_shape_is_refused():
    op = OPS["skewed"]
    with pytest.raises(Unprocessable, match="shape mismatch"):
        derivatives.vjp_jvp(point(op, op.examples[0], "graph"), ["x"], None, {"x": np.ones(2)})
