"""pullback.casadi: derivatives of first and second order against CasADi's own, and IPOPT; requests counted."""

from collections.abc import Callable
from typing import Any

import casadi as cs
import numpy as np
import pytest

import pullback
from pullback.casadi import callback

X = np.array([[1.0, -0.5, 2.0], [0.25, 0.5, -3.0]])
A = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, -1.0]])
QUIET = {"ipopt.print_level": 0, "print_time": 0, "ipopt.sb": "yes", "ipopt.tol": 1e-10}


def norms(x: cs.MX) -> cs.MX:
    return cs.sqrt(cs.sum2(x**2))


def assert_same(ours: Callable[..., Any], theirs: Callable[..., Any], *points: np.ndarray) -> None:
    """Compare the value, the first derivatives in both modes, and the second ones, also of the Jacobian."""
    xs = [cs.MX.sym(f"x{i}", *point.shape) for i, point in enumerate(points)]
    found = []
    for function in (ours, theirs):
        y = function(*xs)
        weights = cs.DM(np.arange(1.0, y.numel() + 1))
        results = [y]
        for x in xs:
            jacobian = cs.jacobian(y, x)
            gradient = cs.gradient(cs.dot(weights, cs.vec(y) ** 2), x)
            results += [jacobian, gradient, cs.jtimes(y, x, cs.DM.ones(*x.shape)), cs.jtimes(y, x, y, True)]
            results += [cs.jacobian(gradient, other) for other in xs]
            results += [cs.jacobian(cs.vec(cs.densify(jacobian)), other) for other in xs]
        found.append([np.array(cs.densify(result)) for result in cs.Function("f", xs, results)(*points)])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)


def test_the_function_of_the_jacobian_has_a_block_for_each_output_and_input(url) -> None:
    """CasADi calls it where there are few inputs; elsewhere it takes rows by the vjp."""
    for ours, theirs, points in [
        (callback("safe_norm", url, {"x": X.shape}), norms, [X]),
        (callback("matvec", url, {"a": A.shape, "x": 3}), cs.mtimes, [A, X[0]]),
        (callback("multiply", url, {"a": X.shape, "b": X.shape}), lambda a, b: a * b, [X, A]),
    ]:
        xs = [cs.MX.sym(f"x{i}", *point.shape) for i, point in enumerate(points)]
        wanted = cs.Function("wanted", xs, [theirs(*xs)])
        seeds = [*points, 0, cs.DM(np.arange(1.0, wanted.numel_out(0) + 1)).reshape(wanted.size_out(0))]
        for mine, other, at in [(ours, wanted, points), (ours.reverse(1), wanted.reverse(1), seeds)]:
            blocks = [each.jacobian().call([*at, *[0] * each.n_out()]) for each in (mine, other)]
            for block, one in zip(*blocks, strict=True):
                np.testing.assert_allclose(np.array(cs.densify(block)), np.array(cs.densify(one)), atol=1e-12)


def test_derivatives_are_those_of_casadi(url) -> None:
    assert_same(callback("safe_norm", url, {"x": X.shape}), norms, X)
    assert_same(callback("safe_norm", url, {"x": 3}), cs.norm_2, X[0])
    assert_same(callback("matvec", url, {"a": A.shape, "x": 3}), cs.mtimes, A, X[0])
    assert_same(callback("multiply", url, {"a": X.shape, "b": X.shape}), lambda a, b: a * b, X, A)
    assert_same(callback("log1pexp", url, {"x": X.shape}), lambda x: cs.log1p(cs.exp(x)), X)
    assert_same(callback("scale_gradient", url, {"x": 3}, {"scale": 1.0}), lambda x: x, X[0])


def test_wide_outputs_are_differentiated_by_columns(url) -> None:
    """A Jacobian of 30 rows and 1 column, and products with more rows than are requested at once."""
    points = np.linspace(0.5, 2, 300)
    assert_same(callback("matvec", url, {"a": (30, 1), "x": 1}), cs.mtimes, points[:30, None], np.array([1.5]))
    ours = callback("matmul", url, {"a": (300, 1), "b": (1, 1)})
    a, b = cs.MX.sym("a", 300), cs.MX.sym("b")
    gradient = cs.Function("g", [a, b], [cs.gradient(cs.sumsqr(ours(a, b)), b)])
    np.testing.assert_allclose(float(gradient(points, 2.0)), 4 * (points**2).sum(), rtol=1e-12)


def test_jacobians_of_independent_rows_are_sparse(url) -> None:
    labels, logits = cs.DM([1, 0]), cs.MX.sym("x", 2, 3)
    loss = callback("softmax_cross_entropy", url, {"logits": X.shape, "labels": 2})
    jacobian = cs.jacobian(loss(logits, labels), logits)
    assert jacobian.nnz() == 6
    weights = np.exp(X) / np.exp(X).sum(1, keepdims=True) - np.eye(3)[[1, 0]]
    found = np.array(cs.densify(cs.Function("j", [logits], [jacobian])(X))).reshape(2, 3, 2).transpose(0, 2, 1)
    np.testing.assert_allclose(found, np.eye(2)[:, :, None] * weights, atol=1e-12)
    with pytest.raises(RuntimeError, match=r"labels: expected integers of int32, got \[0\.5 0\. \]"):
        loss(X, [0.5, 0])
    x, y = cs.MX.sym("x", 2, 2), callback("square", url, {"x": (2, 2)})
    hessian, _ = cs.hessian(cs.sum1(cs.sum2(y(x) ** 2)), x)
    assert hessian.nnz() == 4


def control(square: Callable[[cs.MX], cs.MX], count: int) -> tuple[np.ndarray, int]:
    """Steer x' = u + x² from 0 to 1 in time 1, at the least ∫ (u + x²)² dt; return x and u, and IPOPT's iterations."""
    x, u, step = cs.MX.sym("x", count), cs.MX.sym("u", count), 1 / count
    before = cs.vertcat(0, x[:-1])
    rate = u + square(before)
    constraints = cs.vertcat(x - before - step * rate, x[-1] - 1)
    solver = cs.nlpsol("solver", "ipopt", {"x": cs.vertcat(x, u), "f": step * cs.sumsqr(rate), "g": constraints}, QUIET)
    found = solver(x0=cs.vertcat(cs.DM.ones(count) * 0.3, cs.DM.ones(count) * -2), lbg=0, ubg=0)
    assert solver.stats()["return_status"] == "Solve_Succeeded"
    return np.array(found["x"]).ravel(), solver.stats()["iter_count"]


def test_ipopt_solves_an_optimal_control_problem_with_a_request_an_iteration(url, count) -> None:
    square = callback("square", url, {"x": 10})
    count()
    found, iterations = control(square, 10)
    # The first point is requested twice: its value alone, and then its derivatives.
    assert count() <= iterations + 2
    x = np.linspace(0.1, 1, 10)
    np.testing.assert_allclose(found, [*x, *(1 - (x - 0.1) ** 2)], atol=1e-8)
    theirs, wanted = control(lambda x: x**2, 10)
    assert iterations == wanted
    np.testing.assert_allclose(found, theirs, atol=1e-8)


def test_ipopt_takes_two_requests_an_iteration_of_an_op_that_is_not_elementwise(url, count) -> None:
    def solve(norms: Callable[[cs.MX], cs.MX]) -> tuple[np.ndarray, int]:
        x = cs.MX.sym("x", 2, 3)
        y = norms(x)
        problem = {"x": cs.vec(x), "f": cs.sumsqr(x - A) + cs.sumsqr(y), "g": y}
        solver = cs.nlpsol("solver", "ipopt", problem, QUIET)
        found = solver(x0=X.T.ravel(), lbg=1, ubg=1.5)
        assert solver.stats()["return_status"] == "Solve_Succeeded"
        return np.array(found["x"]).ravel(), solver.stats()["iter_count"]

    remote = callback("safe_norm", url, {"x": X.shape})
    count()
    found, iterations = solve(remote)
    assert count() <= 2 * iterations + 2
    theirs, wanted = solve(norms)
    assert iterations == wanted
    np.testing.assert_allclose(found, theirs, rtol=1e-8)


def test_a_gradient_that_is_not_linear_is_that_of_its_author(url) -> None:
    x, clip = cs.MX.sym("x", 3), callback("clip_gradient", url, {"x": 3})
    y = clip(x)
    np.testing.assert_array_equal(
        np.array(cs.Function("g", [x], [cs.gradient(3 * cs.sum1(y), x)])(X[0])).T, [[0.5] * 3]
    )


def test_the_key_the_deadline_and_errors_are_the_clients(proxy, url) -> None:
    square = callback("square", proxy.url, {"x": 3}, api_key="mine", deadline=1, name="mine")
    np.testing.assert_array_equal(np.array(square(X[0])).ravel(), X[0] ** 2)
    assert set(proxy.new("Authorization")) == {"Bearer mine"}
    proxy.is_open.clear()
    with pytest.raises(RuntimeError, match="deadline"):
        square(X[1])
    with pytest.raises(RuntimeError, match="expected 0 <= label < 3"):
        callback("softmax_cross_entropy", url, {"logits": X.shape, "labels": 2})(X, [7, 0])
    with pytest.raises(pullback.BadArgument, match=r"shapes: expected inputs of square \(x\), got z"):
        callback("square", url, {"x": 3, "z": 2})
    with pytest.raises(pullback.NotFound, match="squar"):
        callback("squar", url, {"x": 3})
