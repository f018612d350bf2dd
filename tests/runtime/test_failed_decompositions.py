"""What no kernel has written is in no answer: it is NaN or 0, or the kernel refuses its input.

The kernels below were compared in processes whose free memory was filled with different bytes.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_linalg_ops

import app.runtime.modes  # noqa: F401 - it installs the correction
from app.runtime.calculus import Graph, Tapes
from app.runtime.repairs import failed_decompositions

LOWER = np.tril(np.ones((3, 3), bool))
CALLS = {
    "public": tf.linalg.cholesky,
    "raw": lambda a: tf.raw_ops.Cholesky(input=a),
    "private": gen_linalg_ops.cholesky,
    "v1": tf.compat.v1.cholesky,
}


def columns(a: Any) -> Any:
    """Return two right-hand sides for each matrix."""
    return tf.reduce_sum(a, -1, keepdims=True) + tf.constant([1.0, 2.0], a.dtype)


def squared(a: Any) -> Any:
    return tf.matmul(a, a, adjoint_b=True)


DECOMPOSITIONS: dict[str, Callable[[Any], Any]] = {
    "cholesky": tf.linalg.cholesky,
    "cholesky_grad": lambda a: tf.raw_ops.CholeskyGrad(l=tf.linalg.cholesky(squared(a)), grad=squared(a)),
    "lu": tf.linalg.lu,
    "qr": tf.linalg.qr,
    "full_qr": lambda a: tf.linalg.qr(a, full_matrices=True),
    "svd": tf.linalg.svd,
    "full_svd": lambda a: tf.linalg.svd(a, full_matrices=True),
    "singular_values": lambda a: tf.linalg.svd(a, compute_uv=False),
    "eigh": tf.linalg.eigh,
    "eigvalsh": tf.linalg.eigvalsh,
    "eig": tf.linalg.eig,
    "eigvals": tf.linalg.eigvals,
    "inv": tf.linalg.inv,
    "solve": lambda a: tf.linalg.solve(a, columns(a)),
    "triangular_solve": lambda a: tf.linalg.triangular_solve(a, columns(a)),
    "banded_triangular_solve": lambda a: tf.linalg.banded_triangular_solve(a[..., :2, :], columns(a)),
    "lstsq": lambda a: tf.linalg.lstsq(a, columns(a), fast=False),
    "fast_lstsq": lambda a: tf.linalg.lstsq(a, columns(a), l2_regularizer=0.1),
    "tridiagonal_solve": lambda a: tf.linalg.tridiagonal_solve(a[..., :3, :], columns(a), "compact"),
    "thomas": lambda a: tf.linalg.tridiagonal_solve(a[..., :3, :], columns(a), "compact", partial_pivoting=False),
    "expm": tf.linalg.expm,
    "sqrtm": tf.linalg.sqrtm,
    "logm": tf.linalg.logm,
    "det": tf.linalg.det,
    "slogdet": tf.linalg.slogdet,
    "pinv": lambda a: tf.linalg.pinv(a, rcond=1e-6),
}
DTYPES = dict.fromkeys(DECOMPOSITIONS, ("float32", "complex64")) | {
    **{"cholesky_grad": ("float32",), "pinv": ("float32",), "logm": ("complex64",)}
}
CASES = [(name, dtype) for name, dtypes in DTYPES.items() for dtype in dtypes]
GOOD = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
MATRICES = {
    "good": GOOD,
    "zero": np.stack([GOOD, 0 * GOOD]),
    "indefinite": np.stack([-GOOD, GOOD, GOOD - 3 * np.eye(3)]),
    "singular": np.stack([GOOD, np.ones((3, 3))]),
    "defective": np.stack([np.eye(3, k=1), GOOD]),
    "nan": np.stack([GOOD, np.where(np.eye(3) > 0, np.nan, GOOD)]),
    "inf": np.stack([GOOD, np.where(np.eye(3) > 0, np.inf, GOOD)]),
    **{f"{shape}": np.ones(shape) for shape in ((0, 0), (0, 3), (3, 0), (2, 0, 3), (0, 3, 3), (2, 3), (3, 2))},
}


def outcome(call: Callable[[Any], Any], a: np.ndarray) -> list[np.ndarray] | None:
    """Return what a call returns, ``None`` if it refuses the matrix."""
    try:
        return [y.numpy() for y in tf.nest.flatten(call(tf.constant(a)))]
    except (tf.errors.InvalidArgumentError, ValueError):
        return None


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_eager_answers_are_those_of_a_graph_beside_nan(name: str, dtype: str) -> None:
    call = DECOMPOSITIONS[name]
    graphs = {
        rank: tf.function(call, autograph=False, input_signature=[tf.TensorSpec([None] * rank, dtype)])
        for rank in (2, 3)
    }
    for matrix, numbers in MATRICES.items():
        a = numbers.astype(dtype)
        first, again, in_graph = outcome(call, a), outcome(call, a), outcome(graphs[a.ndim], a)
        assert (first is None) == (again is None) == (in_graph is None), matrix
        if first is not None and again is not None and in_graph is not None:
            for x, y, z in zip(first, again, in_graph, strict=True):
                np.testing.assert_array_equal(x, y, err_msg=matrix)
                np.testing.assert_allclose(x, z, rtol=1e-4, atol=1e-5, err_msg=matrix)


@pytest.mark.parametrize(
    "name", ["cholesky", "svd", "full_svd", "singular_values", "tridiagonal_solve", "thomas", "lstsq"]
)
def test_complex_results_are_nan_where_real_ones_are(name: str) -> None:
    for matrix, a in MATRICES.items():
        real, found = (outcome(DECOMPOSITIONS[name], a.astype(dtype)) for dtype in ("float64", "complex128"))
        assert (real is None) == (found is None), matrix
        for x, z in zip(real or (), found or (), strict=True):
            np.testing.assert_array_equal(np.isnan(x), np.isnan(z), err_msg=matrix)


def test_a_complex_system_whose_right_side_is_0_is_solved() -> None:
    x = tf.linalg.tridiagonal_solve(tf.constant(GOOD, tf.complex128), tf.zeros([3, 2], tf.complex128), "compact")
    np.testing.assert_array_equal(x, np.zeros((3, 2)))


@pytest.mark.parametrize(
    "call", [tf.linalg.cholesky, lambda a: tf.linalg.svd(a)[0], lambda a: tf.linalg.svd(a, compute_uv=False)]
)
def test_derivatives_of_complex_failures_are_nan(call: Callable[[Any], Any]) -> None:
    good, bad = GOOD.astype(complex), np.where(np.eye(3) > 0, np.nan, GOOD).astype(complex)
    x = tf.constant(np.stack([good, bad]))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.math.real(call(x))
    first, second = tape.gradient(y, x).numpy()
    assert np.isfinite(first).all()
    assert np.isnan(second[0, 0])


def test_no_module_has_the_kernels_of_before() -> None:
    names = ("cholesky", "matrix_logarithm", "matrix_solve_ls", "svd", "tridiagonal_solve")
    kernels = {id(getattr(gen_linalg_ops, name).__wrapped__) for name in names}
    modules = [module for name, module in sys.modules.items() if name.startswith("tensorflow")]
    assert not [module for module in modules for value in vars(module).values() if id(value) in kernels]


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize(
    ("diagonal", "beside"),
    [
        *(([1, np.nan, 2], [1, 1]), ([1, 2, 3], [np.nan, 1]), ([1, np.inf, 2], [1, 1]), ([1, 2, 3], [-np.inf, 1])),
        *(([1e30, 1, 1], [1e30, 1]), ([1e30, 1, 1], [1, 0.5]), ([1, 2, 3], [0, 0]), ([1], [])),
    ],
)
def test_eigenvalues_of_tridiagonal_matrices_are_right_or_nan(
    diagonal: list[float], beside: list[float], dtype: str
) -> None:
    alpha, beta = (tf.constant(np.asarray(x), dtype) for x in (diagonal, beside))
    with np.errstate(invalid="ignore"):
        is_usable = np.isfinite(diagonal).all() and (np.abs(beside) < 1e19).all()
    a = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    expected = np.linalg.eigvalsh(a) if is_usable else np.full(len(diagonal), np.nan)
    for call in (tf.linalg.eigh_tridiagonal, tf.function(tf.linalg.eigh_tridiagonal, autograph=False)):
        np.testing.assert_allclose(call(alpha, beta), expected, rtol=1e-5, atol=1e-5 * np.max(np.abs(expected)))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_logarithm_that_does_not_exist_reaches_no_kernel(dtype: str) -> None:
    """The kernel is a stand-in, which returns what it gets: the real one may never return."""
    logarithm = failed_decompositions._matrix_logarithm(lambda a, name=None: a)
    one, nilpotent = np.eye(3), np.eye(3, k=1)
    singular = np.diag([0.0, 0.05, 0.1])
    signed = np.diag([-1 + 0j, -1 + 0j, -1]).conj()
    signed[0, 0] = -1
    bad = [0 * one, nilpotent, singular, one * np.nan, np.where(one > 0, np.inf, one), signed]
    good = [GOOD, one, one + nilpotent, np.diag([-1.0, 2.0, 3.0]), np.diag([1.0, 1.0, 1e-20])]
    for call in (logarithm, tf.function(logarithm, autograph=False)):
        found = call(tf.constant(np.stack([*bad, *good]).astype(dtype))).numpy()
        assert np.isnan(found[: len(bad)]).all()
        np.testing.assert_array_equal(found[len(bad) :], np.stack(good).astype(dtype))


@pytest.mark.parametrize("a", [GOOD, np.eye(3, k=1) + np.eye(3), np.diag([-1.0, 2.0, 3.0])])
def test_a_logarithm_is_that_of_its_exponential(a: np.ndarray) -> None:
    np.testing.assert_allclose(tf.linalg.expm(tf.linalg.logm(tf.constant(a, tf.complex128))), a, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3)])
@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_no_equations_have_the_smallest_solution(shape: tuple[int, ...], is_fast: bool, is_known: bool) -> None:
    a, b = np.ones(shape), np.ones((*shape[:-1], 2))

    def solve(a: Any, b: Any) -> Any:
        return tf.raw_ops.MatrixSolveLs(matrix=a, rhs=b, l2_regularizer=tf.constant(0.0, tf.float64), fast=is_fast)

    specs = [tf.TensorSpec(x.shape if is_known else [None] * x.ndim, x.dtype) for x in (a, b)]
    for call in (solve, tf.function(solve, autograph=False, input_signature=specs)):
        np.testing.assert_array_equal(call(tf.constant(a), tf.constant(b)), np.zeros((*shape[:-2], 3, 2)))


def batch(dtype: str) -> np.ndarray:
    """Return a matrix that has a factor, and one that has none."""
    return np.stack([np.eye(3) * 4 + 1, -np.eye(3)]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_failed_factors_are_nan_and_zero(call, dtype: str) -> None:
    a = batch(dtype)
    for found in (call(tf.constant(a)), tf.function(call, autograph=False)(tf.constant(a))):
        good, bad = found.numpy()
        np.testing.assert_allclose(good, np.linalg.cholesky(a[0]), rtol=1e-5)
        assert np.isnan(bad[LOWER]).all()
        assert not bad[~LOWER].any()


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_are_those_of_the_graph(order: int) -> None:
    a = batch("float64")

    def derivatives(calculus, x):
        calculus.watch([x])
        found = tf.linalg.cholesky(x) ** 2
        for _ in range(order):
            found = calculus.pullback([found], [x])(None)[0]
        return found

    with Tapes(order) as tapes:
        eager = derivatives(tapes, tf.constant(a)).numpy()
    graph = tf.function(lambda x: derivatives(Graph(), x), autograph=False)(tf.constant(a)).numpy()
    np.testing.assert_allclose(eager, graph, rtol=1e-12, atol=1e-15)
    assert np.isfinite(eager[0]).all()
