"""Gradient functions get a tensor for each output with numbers, wherever the gradient is taken."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.framework.ops import gradient_registry

import app.runtime.modes  # noqa: F401 - it installs the conversion
from ops import custom_gradient, override
from tests.ops.places import PLACES, at_once, in_v1

X = np.array([0.5, -1.5, 2.0])
ROWS = [2, 0, 2]
CONTRAST = "AdjustContrastv2"


@tf.custom_gradient
def cube(x):
    def gradient(dy):
        return dy * 3.0 * x * x

    return x * x * x, gradient


@tf.custom_gradient
def with_others(x):
    def gradient(dy, dn, db, dz):
        assert dn.dtype == tf.int32
        assert db.dtype == tf.bool
        return dy * 3.0 * x * x + tf.cast(dn, x.dtype) + dz * tf.cast(db, x.dtype)

    return (x * x * x, tf.cast(x, tf.int32), x > 0, x + 1), gradient


@tf.custom_gradient
def pick(x):
    return tf.gather(x, ROWS), lambda dy: tf.IndexedSlices(dy, tf.constant(ROWS))


def vjp(x, dy):
    return dy * 3.0 * x * x


def vjp_vjp(x, dy, ddx):
    return ddx * 6.0 * x * dy, ddx * 3.0 * x * x


def exact_cube(x):
    return tf.pow(x, tf.constant(3, x.dtype))


OPS = {
    "custom_gradient": cube,
    "several outputs": lambda x: with_others(x)[0],
    "helper": custom_gradient(lambda x: x * x * x, vjp),
    "helper, both orders": custom_gradient(lambda x: x * x * x, vjp, vjp_vjp),
    "override": override({"Pow": lambda op, dy: (vjp(op.inputs[0], dy), None)}, exact_cube),
}
PICKED = {
    "gather": lambda y: tf.gather(y, ROWS),
    "gather_nd": lambda y: tf.gather_nd(y, [[i] for i in ROWS]),
    "embedding_lookup": lambda y: tf.nn.embedding_lookup(y, ROWS),
    "boolean_mask": lambda y: tf.boolean_mask(y, [True, False, True]),
    "two sums": lambda y: tf.gather(y, [0, 1]) * tf.gather(y, [1, 2]),
    "slices of an author": pick,
    "function": tf.function(lambda y: tf.gather(y, ROWS), autograph=False),
    "branch": lambda y: tf.cond(tf.size(y) > 2, lambda: tf.gather(y, ROWS), lambda: y),
}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use TensorFlow as it is outside of the service."""
    monkeypatch.setattr(record, "record_operation", record.record_operation.__wrapped__)
    registries = type(gradient_registry)
    monkeypatch.setattr(registries, "lookup", registries.lookup.__wrapped__)


def assert_same(place, op, picked) -> None:
    """Compare with TensorFlow's derivative of the same function."""
    expected = at_once(lambda x: picked(x * x * x), X, 2)
    found = place(lambda x: picked(op(x)), X, 2)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


@pytest.mark.share(5)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("picked", PICKED.values(), ids=PICKED)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_cotangents_are_dense(op, picked, place) -> None:
    assert_same(place, op, picked)


@pytest.mark.parametrize("place", [PLACES["eager"], PLACES["tape outside"], in_v1], ids=["eager", "function", "v1"])
def test_cotangents_are_dense_in_loops(place) -> None:
    def turn(i, y):
        return i + 1, tf.gather(cube(y), ROWS)

    found = place(lambda x: tf.while_loop(lambda i, y: i < 2, turn, (0, x))[1], X, 1)
    np.testing.assert_allclose(found[1], [0, 0, 3 * 9 * 2.0**8], rtol=1e-14)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("op", [op for name, op in OPS.items() if name.startswith(("helper", "override"))])
@pytest.mark.parametrize("place", [at_once, in_v1])
def test_helpers_make_them_dense_by_themselves(op, place) -> None:
    assert_same(place, op, PICKED["gather"])


@pytest.mark.usefixtures("alone")
def test_tensorflow_passes_slices() -> None:
    """Remove the conversion when TensorFlow does it."""
    with pytest.raises(TypeError, match="IndexedSlices"):
        at_once(lambda x: tf.gather(cube(x), ROWS), X, 1)
