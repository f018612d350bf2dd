"""Directions, and small matrices, as rows of a call."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives
from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.matrices import hessian, hessian_of_rows, jacobian, jacobian_of_rows
from app.autodiff.padded_rows import PaddedRows
from app.execution.assembly import build
from app.requests.operations import OPERATIONS
from app.requests.plans import Plans
from app.settings import Settings
from app.telemetry.counters import NOT_RECORDED
from ops import Input, Output
from tests.autodiff.evaluations import CASES, REGISTRY, SCALED, centred, flat, point, some_rows
from tests.gradcheck.wrong.making import BOTH, rows


def test_an_output_may_have_the_name_of_a_shared_input() -> None:
    inputs = [Input("x", BOTH, ("N", "M")), Input("w", BOTH, ("M",))]
    op = rows(
        lambda x, w: tf.reduce_sum(x * x * w, axis=-1),
        None,
        name="named",
        inputs=inputs,
        outputs=(Output("w", BOTH, ("N",)),),
        dtypes=BOTH,
        shared=("w",),
    )
    at = point(op, {"x": np.array([[1.0, 2, 3], [4, 5, 6]]), "w": np.array([2.0, 3, 4])})
    cotangents = {"w": np.array([1.0, 0.5], np.float32)}
    small = hessian_of_rows(at, ("x",), cotangents)
    assert small is not None
    for found, expected in zip(
        flat(small.finish(compute([small])[0])), flat(hessian(at, ("x",), cotangents, run_alone)), strict=True
    ):
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("name", ["safe_norm", "square"])
def test_a_few_directions_of_rows_are_short_work(name: str) -> None:
    engine, _ = build(Settings())
    plans, op = Plans(engine), engine.op(name)
    x = {"dtype": "float32", "shape": [3], "data": [1.0, 2.0, 3.0]}
    for count, is_short in ((4, True), (80, False)):
        tangents = {"x": {"dtype": "float32", "shape": [count, 3], "data": [0.5] * count * 3}}
        fields = {"inputs": {"x": x}, "tangents": tangents, "batched": True}
        call = plans.plan(OPERATIONS["jvp"], op, fields).call(fields, lambda result: result, NOT_RECORDED)
        assert call.is_long != (is_short and name == "safe_norm")


def run_alone(checkpoint: Any = None) -> None:
    """The checkpoint of work that nothing ends."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["safe_norm", "softmax_cross_entropy", pytest.param("self_adjoint_eig", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_directions_are_rows_of_a_call(name: str, count: int) -> None:
    """Products with several directions, and small matrices, are those of the map over directions."""
    op, rng = REGISTRY[name], np.random.default_rng(count)
    small = {**CASES, "safe_norm": (3,), "self_adjoint_eig": (2, 2)}
    at = point(op, some_rows(op, small[name], count, rng), "float64")
    x, (y, *_) = op.inputs[0].name, op.outputs
    dys = {y.name: rng.uniform(0.5, 2, (3, *(at.output_shapes[y.name] or ())))}
    vectors = {x: rng.uniform(0.5, 2, (2, *at.inputs[x].shape))}
    one = {y.name: dys[y.name][0]}
    for some in (
        derivatives.vjp(at, (x,), dys, batched=True, outputs=True),
        derivatives.jvp(at, vectors, batched=True),
        derivatives.hvp(at, (x,), one, vectors, batched=True),
    ):
        assert some.batch_key is not None
        for found, expected in zip(flat(some.finish(compute([some])[0])), flat(some.run()), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    matrices_of = (
        (jacobian_of_rows(at, [y.name], (x,)), jacobian(at, [y.name], (x,), run_alone)),
        (hessian_of_rows(at, (x,), one), hessian(at, (x,), one, run_alone)),
    )
    for small_matrix, whole_matrix in matrices_of:
        assert small_matrix is not None
        assert of_copies(small_matrix)
        for found, expected in zip(
            flat(small_matrix.finish(compute([small_matrix])[0])), flat(whole_matrix), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def of_copies(one: Evaluation[Any]) -> bool:
    return one.batched and isinstance(one.packed[0], PaddedRows) and len(one.of_rows.leaves[0]) == one.packed[1]


def test_directions_of_rows_that_depend_on_each_other_are_mapped() -> None:
    op, x = rows(centred, None), np.random.default_rng(9).uniform(-3, 3, (2, 2))
    at = point(op, {"x": x})
    for _ in range(2):  # before and after the trial
        small = jacobian_of_rows(at, ["y"], ("x",))
        expected = jacobian(at, ["y"], ("x",), run_alone)["y"]["x"]
        if small is not None:
            found = small.finish(compute([small])[0])["y"]["x"]
            np.testing.assert_allclose(found, expected)
    assert small is None


@pytest.mark.parametrize("of", [["w", "v"], ["w"]])
def test_a_large_matrix_is_computed_in_steps(of: list[str]) -> None:
    a = np.random.default_rng(2).uniform(-1, 1, (4, 4)) + np.diag([4.0, 8, 12, 16])
    at = point(REGISTRY["self_adjoint_eig"], {"a": a}, "float64")
    assert (jacobian_of_rows(at, of, ("a",)) is None) == (len(of) > 1)


def test_an_input_of_all_rows_has_no_directions_of_rows() -> None:
    at = point(SCALED, {"x": np.ones((1, 2)), "table": np.ones(3)})
    assert derivatives.jvp(at, {"x": np.ones((2, 1, 2))}, batched=True).batch_key is not None
    assert derivatives.jvp(at, {"table": np.ones((2, 3), np.float32)}, batched=True).batch_key is None
