"""Derivatives whose forward pass was kept have the bits of those that compute it."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives
from app.autodiff.binding import bind
from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.packing import Whole
from app.autodiff.point import Point
from app.errors import Unprocessable
from app.runtime import traces
from app.runtime.cut_traces import JOINED
from app.runtime.residuals import Residuals, size_of, using
from app.tensors.json import decode
from ops import Array, Op, discover
from tests.http.native_client import OF_EACH_KIND

pytestmark = pytest.mark.slow

OPS = discover().ops


def point_of(op: Op, inputs: Any, **attrs: Any) -> Point:
    return bind(op, inputs, attrs, None, decode, mode="graph", device="/device:CPU:0", max_elements=1 << 20)


def residuals_of(point: Point, reserve: Callable[[int], bool] = lambda size: True) -> Residuals:
    return Residuals(len(point.inputs) + len(point.spec.numbers), reserve)


def results(evaluation: Evaluation[Any]) -> dict[Any, bytes]:
    return {key: bits(value) for key, value in compute([evaluation])[0].items()}


def bits(value: Array | None) -> bytes:
    return b"" if value is None else value.tobytes()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OF_EACH_KIND else pytest.mark.thorough) for name in OPS]
)
def test_bits_are_those_of_whole_calls(name: str):
    op = OPS[name]
    point = point_of(op, op.examples[0].inputs, **op.examples[0].attrs)
    shapes, rng, kinds = derivatives.output_shapes(point), np.random.default_rng(0), point.spec.outputs.dtypes
    kept, inputs = residuals_of(point), point.spec.inputs.differentiable
    for turn in range(2):
        cotangents = {y: rng.normal(size=shapes[y]).astype(kinds[y]) for y in point.spec.outputs.differentiable}
        vectors = {x: rng.normal(size=point.inputs[x].shape).astype(point.inputs[x].dtype) for x in inputs}
        made = [
            lambda cts=cotangents: derivatives.vjp(point, inputs, cts, batched=False, outputs=True),
            lambda vs=vectors: derivatives.jvp(point, vs, batched=False),
            lambda cts=cotangents, vs=vectors: derivatives.hvp(point, inputs, cts, vs, batched=False),
        ]
        for make in made:
            try:
                whole = results(make())
            except Unprocessable:  # the gradient is not linear
                continue
            with using(kept) as use:
                assert results(make()) == whole
            assert use.computed == (turn == 0)


def test_directions_that_share_a_call_have_the_bits_of_each_alone():
    rng, joined = np.random.default_rng(1), 0
    draws = {"a": rng.normal(size=(300, 170)).astype("f"), "x": rng.normal(size=170).astype("f")}
    larger = [("matvec", draws), ("matmul", {"a": draws["a"], "b": draws["a"].T})]
    for name, inputs in [*((op.name, op.examples[0].inputs) for op in OPS.values()), *larger]:
        point = point_of(OPS[name], inputs)
        shapes, kinds = derivatives.output_shapes(point), point.spec.outputs.dtypes
        made = list[Evaluation[Any]]()
        for _ in range(JOINED):
            cotangents = {y: rng.normal(size=shapes[y]).astype(kinds[y]) for y in point.spec.outputs.differentiable}
            wrt = point.spec.inputs.differentiable
            made.append(derivatives.vjp(point, wrt, cotangents, batched=False, outputs=False))
        if not isinstance(made[0].packed[0], Whole):
            continue
        with using(residuals_of(point)):
            alone = [results(each) for each in made]
            for some in (made, made, made[:3], made[5:]):  # the first ones are compared, and decide
                found = [{key: bits(x) for key, x in each.items()} for each in compute(some)]
                assert found == [alone[made.index(each)] for each in some], name
        joined += 1
    assert joined > 5


def test_residuals_are_those_of_one_point():
    op = OPS["log1pexp"]
    one, other = point_of(op, {"x": [0.5, 1.0]}), point_of(op, {"x": [0.5, 2.0]})
    kept, cotangents = residuals_of(one), {"y": np.ones(2, np.float32)}
    for point, computed in ((one, 1), (other, 1), (one, 0), (other, 0)):
        evaluation = derivatives.vjp(point, ("x",), cotangents, batched=False, outputs=False)
        whole = results(evaluation)
        with using(kept) as use:
            assert results(evaluation) == whole
        assert use.computed == computed


def test_what_finds_no_room_is_computed_again():
    point = point_of(OPS["matmul"], OPS["matmul"].examples[0].inputs)
    taken: list[int] = []
    kept = residuals_of(point, lambda size: taken.append(size) or False)
    (shape,) = derivatives.output_shapes(point).values()
    evaluation = derivatives.vjp(point, ("a",), {"y": np.ones(shape, np.float32)}, batched=False, outputs=False)
    for _ in range(2):
        whole = results(evaluation)
        with using(kept) as use:
            assert results(evaluation) == whole
        assert (use.computed, use.lost) == (1, 1)
    assert len(taken) == 2


def test_residuals_do_not_keep_a_trace_and_go_after_it(monkeypatch: pytest.MonkeyPatch):
    point = point_of(OPS["matmul"], OPS["matmul"].examples[0].inputs)
    taken: list[int] = []
    kept = residuals_of(point, lambda size: taken.append(size) or True)
    (shape,) = derivatives.output_shapes(point).values()
    evaluation = derivatives.vjp(point, ("a",), {"y": np.ones(shape, np.float32)}, batched=False, outputs=False)
    totals = list[int]()
    monkeypatch.setattr(traces, "TRACES", traces.Traces())
    for _ in range(3):
        traces.TRACES = traces.Traces()  # without the traces of before
        gc.collect()
        with using(kept) as use:
            compute([evaluation])
        assert use.computed == 1
        totals.append(sum(taken))
    assert totals[0] > 0
    assert len(set(totals)) == 1


def test_lists_of_tensors_have_the_size_of_their_elements():
    rows = tf.zeros((5, 7), tf.float64)
    inner = tf.raw_ops.TensorListFromTensor(tensor=rows, element_shape=[7])
    assert size_of(rows) == size_of(inner) == 5 * 7 * 8
    outer = tf.raw_ops.TensorListReserve(element_shape=tf.zeros(0, tf.int32), num_elements=3, element_dtype=tf.variant)
    for index in range(3):
        outer = tf.raw_ops.TensorListSetItem(input_handle=outer, index=index, item=inner)
    assert size_of(outer) == 3 * 5 * 7 * 8
    assert (
        size_of(
            tf.raw_ops.EmptyTensorList(element_shape=tf.zeros(0, tf.int32), max_num_elements=4, element_dtype=tf.int32)
        )
        == 0
    )
