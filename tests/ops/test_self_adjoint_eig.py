"""Eigenpairs: against TensorFlow's own gradient, and where eigenvalues meet."""

import numpy as np
import pytest
import tensorflow as tf

from ops import MODES, Example
from ops._eigh import diagonalised, eigh
from tests.ops.cases import REGISTRY, Case, answer, directions, eps, truth, used

OP = REGISTRY.ops["self_adjoint_eig"]
REPEATED = np.diag([1.0, 1.0, 2.0])


def case(a, **attrs):
    return Case(OP, Example("", {"a": np.asarray(a).tolist()}, attrs))


@pytest.mark.parametrize("seed", range(4))
def test_without_broadening_the_gradient_is_that_of_eigh(seed) -> None:
    """eigh gets S = (A + Aᵀ)/2, because it reads only the lower triangle; dV follows the signs that the op fixes."""
    a = np.random.default_rng(seed).normal(size=(3, 3))
    one = case(a)
    along = used(directions(one.point(), one.rng), "vjp")
    found = truth(one.point(), "vjp", along)
    dw, dv = along["cotangents"]["w"], along["cotangents"]["v"]
    with tf.GradientTape() as tape:
        tape.watch(x := tf.constant(a))
        w, v = tf.linalg.eigh((x + tf.transpose(x)) / 2)
    signs = np.sign(np.sum(v * found.found["outputs/v"], axis=0))
    expected = tape.gradient([w, v], x, output_gradients=[tf.constant(dw), tf.constant(dv * signs)]).numpy()
    # The gradient of eigh is a lower triangle, which the surrounding (A + Aᵀ)/2 makes symmetric.
    within = 4 * found.bound("gradients/a", "float64")
    assert (np.abs(found.found["gradients/a"] - expected) <= within).all()
    assert (found.found["gradients/a"] == found.found["gradients/a"].T).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", MODES)
def test_pairs_are_exact_up_to_rounding_however_close_eigenvalues_are(mode, dtype) -> None:
    """XLA's own solver leaves a residual of 1e-6 in float64, and eigenvectors of close eigenvalues that are wrong."""
    rng = np.random.default_rng(0)
    gaps = np.repeat([1.0, 1e-3, 1e-5, 1e-7, 1e-8, 1e-9, 1e-12, 0.0], 8)[:, np.newaxis]
    w = np.repeat(rng.uniform(-1, 1, (len(gaps), 3)), (1, 3, 4), axis=1) + gaps * rng.uniform(-1, 1, (len(gaps), 8))
    q, _ = np.linalg.qr(rng.normal(size=(len(gaps), 8, 8)))
    a = ((q * w[:, np.newaxis]) @ np.swapaxes(q, 1, 2)).astype(dtype)
    # The scale of each matrix; the last one is 0.
    scale = np.append(10.0 ** rng.integers(-9, 10, len(gaps) - 1), 0)[:, np.newaxis, np.newaxis].astype(dtype)
    found = answer(case(a * scale).point(mode=mode, dtype=dtype), "forward", {})
    s, w, v = (x.astype(np.longdouble) for x in (a * scale, found["outputs/w"], found["outputs/v"]))
    s, vt = (s + np.swapaxes(s, 1, 2)) / 2, np.swapaxes(v, 1, 2)
    assert (np.diff(w) >= 0).all()
    within = 8 * 8 * eps(dtype)
    np.testing.assert_allclose(vt @ v, np.broadcast_to(np.eye(8), v.shape), rtol=0, atol=within)
    assert (np.abs(s @ v - v * w[:, np.newaxis]) <= 2 * within * scale).all()


def test_large_matrices_keep_the_pairs_of_lapack() -> None:
    """What rounding leaves off the diagonal grows with the order: rotations would not end, and would remove nothing."""
    a = np.random.default_rng(0).normal(size=(400, 400))
    s = tf.constant(a + a.T)
    w, v = tf.linalg.eigh(s)
    found_w, found_v = eigh(s)
    assert (found_v.numpy() == v.numpy()).all()
    np.testing.assert_allclose(found_w, w, rtol=0, atol=400 * eps("float64") * float(np.abs(w).max()))


def test_rotations_alone_diagonalise_and_leave_what_is_diagonal() -> None:
    """From the identity, and next to it a matrix with LAPACK's pairs, which keep their bits."""
    a = np.random.default_rng(0).normal(size=(20, 8, 8))
    s = (a + np.swapaxes(a, 1, 2)) / 2
    w, v = (x.numpy() for x in tf.linalg.eigh(s))
    stack = np.concatenate([s, s]), np.concatenate([w, 0 * w]), np.concatenate([v, 0 * v + np.eye(8)])
    found_w, found_v = (x.numpy() for x in diagonalised(*map(tf.constant, stack)))
    np.testing.assert_array_equal(found_w[:20], w)
    np.testing.assert_array_equal(found_v[:20], v)
    within = 8 * 8 * eps("float64") * np.abs(w).max()
    np.testing.assert_allclose(found_w[20:], w, rtol=0, atol=within)
    np.testing.assert_allclose(s @ found_v[20:], found_v[20:] * w[:, np.newaxis], rtol=0, atol=within)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_with_broadening_all_is_finite_at_repeated_eigenvalues(mode) -> None:
    one = case(REPEATED, broadening=1e-3)
    point = one.point(mode=mode)
    for kind in ("gradients", "hvp"):
        for name, value in answer(point, kind, used(directions(point, one.rng), kind)).items():
            assert np.isfinite(value).all(), name


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow if mode == "xla" else ()) for mode in MODES]
)
def test_gradients_of_the_trace_are_finite_without_broadening(mode) -> None:
    """The poles are multiplied by exact zeros: d tr/dA is the identity, and the second order 0."""
    point, dys = case(REPEATED).point(mode=mode), {"cotangents": {"w": np.ones(3), "v": np.zeros((3, 3))}}
    found = answer(point, "gradients", dys)["gradients/0/a"]
    np.testing.assert_allclose(found, np.eye(3), rtol=0, atol=24 * eps("float64"))
    products = answer(point, "hvp", dys | {"vectors": {"a": np.ones((3, 3))}})["products/a"]
    np.testing.assert_array_equal(products, np.zeros((3, 3)))


def test_gradients_of_eigenvectors_are_nan_without_broadening() -> None:
    point = case(REPEATED).point()
    dv = np.random.default_rng(0).normal(size=(3, 3))
    assert np.isnan(answer(point, "vjp", {"cotangents": {"v": dv}})["gradients/a"]).any()


def test_the_broadening_is_a_number_and_makes_no_trace() -> None:
    gradients = [
        answer(case([[1.0, 0.5], [0.5, 1.5]], broadening=b).point(), "vjp", {})["gradients/a"] for b in (0.0, 0.1, 1.0)
    ]
    assert not np.array_equal(gradients[0], gradients[1])
    assert not np.array_equal(gradients[1], gradients[2])
