"""Derived ops: closed forms to the third order, names and contracts, and what is refused or absent."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives
from app.autodiff.absent import Absent
from app.autodiff.binding import bind
from app.autodiff.derived import DEEPEST, DerivedOp, derivations, derive, derived
from app.errors import NotFound, Unprocessable
from ops import Example, Input, Mode, Output, custom_gradient, discover
from tests.gradcheck.op_makers import elementwise
from tests.ops.cases import DEVICE

REGISTRY = discover().ops


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


X, DY, DDX, DDDX, DDDY = np.array(
    [[-1.5, 0.25, 2.0], [0.5, 2.0, -1.25], [1.0, 3.0, 0.5], [2.0, 1.0, 1.0], [0.5, 1.5, 2.5]]
)
S = sigmoid(X)
# The first three derivatives of each op at X.
CLOSED = {"square": (2 * X, 2 + 0 * X, 0 * X), "log1pexp": (S, S * (1 - S), S * (1 - S) * (1 - 2 * S))}


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("mode", ["graph", "eager", "xla", "v1"])
def test_closed_forms_to_third_order(name: str, mode: Mode) -> None:
    first, second, third = CLOSED[name]
    found = value(name, "vjp", mode, x=X, dy=DY)
    assert np.allclose(found["dx"], first * DY, rtol=1e-12)
    found = value(name, "jvp", mode, x=X, tx=DY)
    assert np.allclose(found["ty"], first * DY, rtol=1e-12)
    found = value(name, "vjp.jvp", mode, x=X, dy=DY, tx=DDX, tdy=DDDX)
    assert np.allclose(found["tdx"], second * DY * DDX + first * DDDX, rtol=1e-12)
    found = value(name, "vjp.vjp", mode, x=X, dy=DY, ddx=DDX)
    assert np.allclose(found["dx"], second * DY * DDX, rtol=1e-12)
    assert np.allclose(found["ddy"], first * DDX, rtol=1e-12)
    found = value(name, "vjp.vjp.vjp", mode, x=X, dy=DY, ddx=DDX, dddx=DDDX, dddy=DDDY)
    assert np.allclose(found["dx"], third * DY * DDX * DDDX + second * DDX * DDDY, rtol=1e-12)
    assert np.allclose(found["ddy"], second * DDX * DDDX, rtol=1e-12)
    assert np.allclose(found["ddddx"], second * DY * DDDX + first * DDDY, rtol=1e-12)


def value(name: str, path: str, mode: Mode, **inputs: Any) -> Any:
    op = derived(REGISTRY[name], f"{name}.{path}", path.split("."))
    run = {"mode": mode, "device": DEVICE, "max_elements": 1 << 25}
    return derivatives.forward(bind(op, inputs, {}, "float64", lambda x, dtype, loc: x, **run)).run()


def test_names_are_free() -> None:
    """The cotangent of y is called ddy, because an input is called dy."""

    def product_of(x: Any, dy: Any) -> Any:
        return x * dy

    op = elementwise(
        tf.function(product_of),
        inputs=(Input("x", ("float64",)), Input("dy", ("float64",))),
        examples=(Example("one", {"x": [1.0], "dy": [2.0]}),),
    )
    first = derive(op, "vjp")
    assert [slot.name for slot in first.inputs] == ["x", "dy", "ddy"]
    assert [slot.name for slot in first.outputs] == ["dx", "dddy"]
    assert [slot.name for slot in derive(op, "jvp").inputs] == ["x", "dy", "tx", "tdy"]


def test_a_contract_follows_from_that_of_the_registered_op() -> None:
    op = REGISTRY["softmax_cross_entropy"]
    found = derived(op, "softmax_cross_entropy.vjp.jvp", ["vjp", "jvp"])
    assert isinstance(found, DerivedOp)
    assert (found.of.name, found.derivation, found.owner) == (f"{op.name}.vjp", ["vjp", "jvp"], op.name)
    assert [(slot.name, slot.shape) for slot in found.inputs] == [
        ("logits", ("N", "C")),
        ("labels", ("N",)),
        ("dloss", ("N",)),
        ("tlogits", ("N", "C")),
        ("tdloss", ("N",)),
    ]
    assert [(slot.name, slot.shape) for slot in found.outputs] == [("tdlogits", ("N", "C"))]
    assert [slot.doc for slot in (*found.inputs[3:], *found.outputs)] == [
        "the tangent of logits",
        "the tangent of dloss",
        "the tangent of dlogits",
    ]
    assert [slot.doc for slot in (*found.of.inputs[2:], *found.of.outputs)] == [
        "the cotangent of loss",
        "the cotangent of logits",
    ]
    assert found.batching == op.batching
    assert [example.name for example in found.examples] == [example.name for example in op.examples]
    assert found is derive(derive(op, "vjp"), "jvp")


def test_what_cannot_be_derived_says_why() -> None:
    with pytest.raises(NotFound, match="at most 4 derivations"):
        derived(REGISTRY["square"], "square" + ".vjp" * (DEEPEST + 1), ["vjp"] * (DEEPEST + 1))
    with pytest.raises(NotFound, match="unknown derivation 'hvp'"):
        derived(REGISTRY["square"], "square.hvp", ["hvp"])
    fixed = elementwise(lambda x: x, inputs=(Input("x", ("float64",), differentiable=False),))
    with pytest.raises(NotFound, match="no input of it is differentiable"):
        derive(fixed, "vjp")
    assert derivations(fixed) == ()
    deepest = derived(REGISTRY["square"], "square.vjp.vjp.vjp.vjp", ["vjp"] * DEEPEST)
    assert derivations(deepest) == ()


@pytest.mark.parametrize("path", ["jvp", "jvp.vjp"])
def test_a_gradient_that_is_not_linear_has_no_jvp(path: str) -> None:
    op = derived(REGISTRY["clip_gradient"], f"clip_gradient.{path}", path.split("."))
    directions = {"tx": [1.0], "dty": [1.0]}
    inputs = {slot.name: directions.get(slot.name, [1.0]) for slot in op.inputs}
    run = {"mode": "graph", "device": DEVICE, "max_elements": 1 << 25}
    with pytest.raises(Unprocessable, match="clip_gradient is not linear in the cotangent"):
        bind(op, inputs, {}, "float64", lambda x, dtype, loc: np.asarray(x), **run)
    allowed = bind(op, inputs, {"by": "none"}, "float64", lambda x, dtype, loc: np.asarray(x), **run)
    assert derivatives.forward(allowed).run()


def test_a_missing_derivative_is_absent() -> None:
    op = elementwise(
        custom_gradient(lambda x, z: x + 0 * z, lambda x, z, dy: (dy, None)),
        inputs=(Input("x", ("float64",)), Input("z", ("float64",))),
        outputs=(Output("y", ("float64",)),),
        null_gradients=("z",),
        examples=(Example("one", {"x": [1.0], "z": [2.0]}),),
    )
    one = np.ones(2)
    run = {"mode": "graph", "device": DEVICE, "max_elements": 1 << 25}
    at = bind(derive(op, "vjp"), {"x": one, "z": one, "dy": one}, {}, "float64", lambda x, dtype, loc: x, **run)
    found = derivatives.forward(at).run()
    assert np.array_equal(found["dx"], one)
    assert found["dz"] is Absent.DISCONNECTED


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize("path", ["vjp", "vjp.vjp"])
def test_a_cotangent_of_the_wrong_shape_is_refused_where_only_a_run_tells_it(path: str, mode: Mode) -> None:
    op = elementwise(
        lambda x: tf.boolean_mask(x, x > 0),
        inputs=(Input("x", ("float64",), ("N",)),),
        outputs=(Output("y", ("float64",), ("P",)),),
        batching="none",
        examples=(Example("one", {"x": [1.0, -1.0]}),),
    )
    run = {"mode": mode, "device": DEVICE, "max_elements": 1 << 25}
    inputs = {"x": np.array([1.0, -2.0, 3.0]), "dy": np.ones(2), "ddx": np.ones(3)}
    op = derived(op, f"op.{path}", path.split("."))
    names = [slot.name for slot in op.inputs]
    found = derivatives.forward(bind(op, {name: inputs[name] for name in names}, {}, None, as_it_is, **run)).run()
    assert np.array_equal(found["dx" if path == "vjp" else "ddy"], [1.0, 0.0, 1.0] if path == "vjp" else [1.0, 1.0])
    for wrong in (np.ones(1), np.ones(3)):
        at = bind(op, {name: {**inputs, "dy": wrong}[name] for name in names}, {}, None, as_it_is, **run)
        with pytest.raises(Unprocessable, match="shape mismatch") as caught:
            derivatives.forward(at).run()
        assert caught.value.entries[0].loc == ("inputs", "dy")


def as_it_is(x: Any, dtype: str, loc: Any) -> Any:
    return x
