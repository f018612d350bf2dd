"""What a remote op promises in every framework, eagerly and in its programs: ``with_FRAMEWORK.py`` knows how."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pullback

X = np.array([-0.5, 0.25, 2.0])


def layers(f: Callable[..., Any], count: int) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        for i in range(count):
            x = 0.5 * f(x) + 0.1 * i
        return x

    return run


@pytest.fixture
def threads(adapter: ModuleType) -> int:
    """Return how many threads use a function together."""
    if not adapter.IS_THREADED:
        pytest.skip("a function of this framework is for one thread at a time")
    return 8


def test_attributes_reach_the_op(remote, adapter, way) -> None:
    y, gradient = adapter.value_and_gradient(remote("scale_gradient", attrs={"scale": 0.5}), way)(X)
    np.testing.assert_array_equal(y, X.sum())
    np.testing.assert_array_equal(gradient, [0.5, 0.5, 0.5])


def test_the_second_order_that_the_author_declared_arrives(remote, adapter, way) -> None:
    hessian = adapter.hessian(remote("log1pexp2"), way)
    np.testing.assert_allclose(hessian(X), np.diag(1 - np.exp(X)), rtol=1e-12)


def test_a_composition_takes_a_request_for_each_derivative(remote, compose, adapter, way, count) -> None:
    log1pexp, safe_norm, square = map(remote, ("log1pexp", "safe_norm", "square"))
    loss = compose(lambda x: log1pexp(safe_norm(square(x))) * 2)
    step, hessian = adapter.value_and_gradient(loss, way), adapter.hessian(loss, way)
    count()
    for x in (X, X + 0.5):
        r = np.linalg.norm(x**2)
        slope, bend, dr = 2 / (1 + np.exp(-r)), 2 / ((1 + np.exp(-r)) * (1 + np.exp(r))), 2 * x**3 / r
        y, gradient = step(x)
        assert count() == 1
        np.testing.assert_allclose(y, 2 * np.log1p(np.exp(r)), rtol=1e-12)
        np.testing.assert_allclose(gradient, slope * dr, rtol=1e-12)
    curvature = np.diag(6 * x**2 / r) - np.outer(dr, dr) / r
    np.testing.assert_allclose(hessian(x), bend * np.outer(dr, dr) + slope * curvature, rtol=1e-10)


def test_a_scalar_and_its_gradient_are_one_request(remote, adapter, way, count) -> None:
    step = adapter.value_and_gradient(remote("safe_norm"), way)
    for scale in (1.0, 2.0):
        y, gradient = step(scale * np.array([3.0, 4.0]))
        np.testing.assert_allclose([y, *gradient], [5.0 * scale, 0.6, 0.8])
        assert count() == 1


@pytest.mark.parametrize("number", [2, 10])
def test_layers_of_one_function_take_a_request_each(remote, adapter, way, count, number: int) -> None:
    results = [adapter.value_and_gradient(layers(f, number), way)(X) for f in (remote("log1pexp"), adapter.softplus)]
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)
    assert count() == number


def test_threads_and_points_never_mix(remote, adapter, way, threads: int) -> None:
    step = adapter.value_and_gradient(remote("log1pexp"), way)

    def error(seed: int) -> float:
        rng, worst = np.random.default_rng(seed), 0.0
        for _ in range(20):
            x = rng.choice([-1.0, 0.0, 1.0], size=2)
            y, gradient = map(np.asarray, step(x))
            worst = max(worst, abs(y - np.log1p(np.exp(x)).sum()), np.abs(gradient - 1 / (1 + np.exp(-x))).max())
        return worst

    with ThreadPoolExecutor(threads) as pool:
        assert max(pool.map(error, range(threads))) < 1e-6


def test_threads_take_a_request_for_each_point(remote, adapter, way, count, threads: int) -> None:
    step = adapter.value_and_gradient(remote("log1pexp"), way)
    step(X)
    count()

    def work(seed: int) -> None:
        for i in range(25):
            step(X + seed + i / 100)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(1, 1 + threads)))
    assert count() == 25 * threads


def test_a_deadline_ends_a_call(proxy, remote, adapter, way) -> None:
    step = adapter.value_and_gradient(remote("log1pexp", url=proxy.url, deadline=1), way)
    step(X)
    proxy.is_open.clear()
    with pytest.raises((pullback.TimedOut, pullback.DeadlinePassed, *adapter.WRAPPED), match="deadline"):
        step(X + 1)
