"""Op errors that every operation must find, and points that must be refused."""

import contextlib
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import create_model

from app.autodiff import derivatives, directions, matrices
from app.autodiff.binding import bind
from app.autodiff.point import MAX_COST, Point, number
from app.errors import DeadlinePassed, OpFailed, Unprocessable
from app.runtime.cancellation import Interruptible
from app.tensors.json import decode
from ops import INTEGERS, MODES, Attrs, Example, Input, Mode, Op, Output, custom_gradient, discover

OPS = discover().ops
X = {"x": [1.0, 2.0]}


def op_of(function: Any, **changes: Any) -> Op:
    declared: dict[str, Any] = {
        "name": "faulty",
        "summary": "an op for a test",
        "doc": "y = 2x",
        "function": function,
        "reference": np.asarray,
        "inputs": (Input("x"),),
        "outputs": (Output("y"),),
        "mechanism": "custom_gradient",
        "source": "a test",
        "examples": (Example("two", X),),
    }
    return Op(**{**declared, **changes})


def point(op: Op, inputs: dict[str, Any], mode: Mode = "graph", **attrs: Any) -> Point:
    where = {"mode": mode, "device": "/device:CPU:0", "max_elements": 1 << 20}
    return bind(op, inputs, attrs, None, decode, **where)


def go_on() -> None:
    """Let long work continue."""


def double(x: tf.Tensor) -> tf.Tensor:
    return 2 * x


@tf.custom_gradient
def float64_for_float32(x):
    return 2 * x, lambda dy: tf.cast(2 * dy, tf.float64)


def hostile(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(lambda x: np.array([1, 2], np.uint8).view(np.bool_), [x], tf.bool)


@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
@pytest.mark.parametrize("batching", ["none", "elementwise"])
def test_an_invalid_bool_byte_from_a_kernel_is_an_op_error(mode: Mode, batching: str):
    y = Output("y", ("bool",), differentiable=False)
    at = point(op_of(hostile, outputs=(y,), batching=batching), X, mode)
    for run in (derivatives.forward(at), derivatives.vjp(at, ["x"], None, batched=False, outputs=True)):
        with pytest.raises(
            OpFailed, match="forward returned a wrong value for y: expected 0 or 1 for each bool, got the byte 2"
        ):
            run.run()


def ways_to_the_first_order(at: Point) -> dict[str, Any]:
    one = np.ones(2, np.float32)
    return {
        "vjp": lambda: derivatives.vjp(at, ["x"], None, batched=False, outputs=False).run(),
        "vjp of a cotangent": lambda: derivatives.vjp(at, ["x"], {"y": one}, batched=False, outputs=False).run(),
        "batched vjp": lambda: derivatives.vjp(at, ["x"], {"y": one[None]}, batched=True, outputs=False).run(),
        "gradients": lambda: derivatives.gradients(at, ["x"], None, 2).run(),
        "jacobian": lambda: matrices.jacobian(at, ["y"], ["x"], go_on),
        "jvp": lambda: derivatives.jvp(at, {"x": one}, batched=False).run(),
        "hvp": lambda: derivatives.hvp(at, ["x"], None, {"x": one}, batched=False).run(),
        "hessian": lambda: matrices.hessian(at, ["x"], None, go_on),
    }


@pytest.mark.parametrize("batching", ["none", "elementwise"])
@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
@pytest.mark.parametrize("function", [float64_for_float32, lambda x: tf.stop_gradient(2 * x)])
def test_every_first_order_operation_refuses_a_wrong_gradient(function, mode: Mode, batching: str):
    at = point(op_of(function, batching=batching), X, mode)
    for way in ways_to_the_first_order(at).values():
        with pytest.raises(OpFailed, match="gradient function returned a wrong value for x"):
            way()


@pytest.mark.parametrize("mode", MODES)
def test_a_tangent_of_another_shape_is_refused(mode: Mode):
    op = op_of(
        custom_gradient(double, lambda x, dy: 2 * dy, lambda x, dy, ddx: (tf.zeros_like(x), tf.reduce_sum(2 * ddx)))
    )
    with pytest.raises(OpFailed):
        derivatives.jvp(point(op, X, mode), {"x": np.ones(2, np.float32)}, batched=False).run()


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_an_output_of_another_shape_is_refused(mode: Mode):
    op = op_of(tf.reduce_sum)
    for way in ways_to_the_first_order(point(op, X, mode)).values():
        with pytest.raises(OpFailed):
            way()
    with pytest.raises(OpFailed, match=r"forward returned a wrong value for y: expected shape \[2\], got \[\]"):
        derivatives.forward(point(op, X, mode)).run()


def test_a_jacobian_has_the_dtype_of_its_output():
    """The type variable of a gather is that of its indices."""
    op = op_of(
        tf.gather,
        inputs=(Input("x", dtypes=("float32",), shape=("N",)), Input("i", dtypes=INTEGERS[:2], shape=("K",))),
        outputs=(Output("y", dtypes=("float32",), shape=("K",)),),
        examples=(Example("two", {"x": [1.0, 2.0], "i": [1]}),),
    )
    blocks = matrices.jacobian(point(op, {"x": [1.0, 2.0], "i": [1, 1, 0]}), ["y"], ["x", "i"], go_on)
    found = blocks["y"]["x"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 1], [0, 1], [1, 0]]
    assert blocks["y"]["i"] is derivatives.Absent.NOT_DIFFERENTIABLE


def test_a_number_is_rounded_once():
    """Rounded to float32 first, this number would become a tie, and then 1."""
    assert float(number(1 + 2**-8 + 2**-40, "bfloat16")) == 1 + 2**-7
    assert np.isinf(np.float32(number(70000.0, "float16")))


def test_a_broadening_that_underflows_is_refused():
    matrix = {"a": [[1.0, 0.0], [0.0, 1.0]]}
    for name, inputs in (("self_adjoint_eig", matrix), ("conv_eig", {"x": [[[[1.0]]]], "f": [[[[1.0]]]]})):
        with pytest.raises(Unprocessable, match=r"attrs\.broadening"):
            point(OPS[name], inputs, broadening=1e-25)
        assert point(OPS[name], inputs, broadening=1e-15)


def test_endless_work_is_refused_before_it_begins():
    filters = {"dtype": "float32", "shape": [1, 1, 1, 4000], "data": [1.0] * 4000}
    with pytest.raises(Unprocessable, match="multiply-adds") as refused:
        point(OPS["conv_eig"], {"x": [[[[1.0]]]], "f": filters})
    assert str(MAX_COST) in refused.value.entries[0].expected


@pytest.mark.parametrize("annotation", [list[int], tuple[int, ...], int, float | None, str])
def test_an_unsendable_or_unbounded_attribute_is_refused(annotation):
    attrs = create_model("Some", __base__=Attrs, some=(annotation, ...))
    with pytest.raises(ValueError, match="attribute 'some'"):
        op_of(double, attrs=attrs)


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow if mode == "xla" else ()) for mode in MODES]
)
def test_directions_in_parts_equal_directions_in_one_call(mode: Mode, monkeypatch):
    at = point(OPS["softmax_cross_entropy"], {"logits": [[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]], "labels": [0, 2]}, mode)
    rng = np.random.default_rng(1)
    dys, ts = rng.normal(size=(5, 2)).astype(np.float32), rng.normal(size=(5, 2, 3)).astype(np.float32)

    def answers() -> list[np.ndarray]:
        return [
            derivatives.vjp(at, ["logits"], {"loss": dys}, batched=True, outputs=True).run()[1]["logits"],
            derivatives.jvp(at, {"logits": ts}, batched=True).run()["loss"],
            derivatives.hvp(at, ["logits"], None, {"logits": ts}, batched=True).run()["logits"],
        ]

    whole = answers()
    monkeypatch.setattr(directions, "CALL_ELEMENTS", 2 * (6 + 2 + 2 + 1))
    assert directions.per_call(at) == 2
    for part, one in zip(answers(), whole, strict=True):
        assert part.shape == one.shape
        # The same formula on the same numbers, at other positions of a vector register: they may differ by one ulp.
        np.testing.assert_array_max_ulp(part, one, 1)


def exits(x):
    raise SystemExit(3)


@pytest.mark.parametrize("mode", MODES)
def test_an_op_that_exits_is_an_op_error_every_time(mode: Mode):
    for _ in range(2):
        with pytest.raises(OpFailed):
            derivatives.forward(point(op_of(exits), X, mode)).run()


def test_a_cancelled_trace_is_not_cached_as_an_error():
    @tf.function
    def constant():
        return tf.linalg.matmul(tf.ones([2, 2]), tf.ones([2, 2]))[0, 0]

    def impatient(x):
        if tf.executing_eagerly():
            return 2 * x
        block.cancel()
        with tf.init_scope():
            two = constant()
        return two * x

    at = point(op_of(impatient), X)
    with Interruptible(time.monotonic() + 60) as block, contextlib.suppress(DeadlinePassed):
        derivatives.forward(at).run()
    with Interruptible(time.monotonic() + 60):
        assert derivatives.forward(at).run()["y"].tolist() == [2.0, 4.0]


def raises_key_error(*_: Any) -> Any:
    raise KeyError("N")


@pytest.mark.parametrize("what", ["validate", "cost"])
def test_an_exception_in_an_op_function_is_an_op_error(what: str):
    with pytest.raises(OpFailed, match=f"op faulty: {what} raised KeyError"):
        point(op_of(double, **{what: raises_key_error}), X)


def outer(x):
    return x[:, None] * x[None, :]


def test_outputs_over_the_limit_are_refused_before_they_are_computed():
    shapes = {"inputs": (Input("x", shape=("N",)),), "outputs": (Output("y", shape=("N", "N")),)}
    assert point(op_of(outer, **shapes), {"x": [1.0] * 1024})
    with pytest.raises(Unprocessable, match="the outputs would have 1050625 elements"):
        point(op_of(outer, **shapes), {"x": [1.0] * 1025})


def test_a_number_takes_the_float_dtype_in_any_order():
    class Scale(Attrs):
        scale: float = 1.5

    def scaled(n, x, *, scale):
        return scale * x

    op = op_of(
        custom_gradient(scaled, lambda n, x, dy, *, scale: (None, scale * dy)),
        inputs=(Input("n", dtypes=("int32",), shape=(), differentiable=False), Input("x")),
        examples=(Example("two", {"n": 1, **X}),),
        attrs=Scale,
    )
    found = derivatives.vjp(point(op, {"n": 1, **X}), ["x"], None, batched=False, outputs=False).run()[1]["x"]
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [1.5, 1.5]
    assert op.function(tf.constant(1), tf.constant([2.0]), scale=2.0).numpy().tolist() == [4.0]


class WithoutDefault(Attrs):
    size: float


@pytest.mark.parametrize(
    "changes",
    [
        {"attrs": WithoutDefault},
        {"claim": raises_key_error},
        {"examples": (Example("two", {"z": [1.0]}),)},
        {"examples": (Example("two", X, {"unknown": 1}),)},
        {"null_gradients": ("z",)},
    ],
)
def test_an_unservable_declaration_is_refused(changes):
    with pytest.raises((ValueError, KeyError)):
        op_of(double, **changes)
