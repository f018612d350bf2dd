"""PyMC samples a model whose likelihood is a remote op."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pullback.pytensor

HOURS = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0])
PASSED = np.array([-1, -1, 1, -1, 1, -1, 1, 1])
FEATURES = np.stack([HOURS - HOURS.mean(), np.ones(8)], axis=1)
WIDTH = 2.0


def log_posterior(weights: np.ndarray) -> np.ndarray:
    margins = PASSED * (weights @ FEATURES.T)
    return -np.logaddexp(0, -margins).sum(axis=-1) - (weights**2).sum(axis=-1) / (2 * WIDTH**2)


def moments() -> np.ndarray:
    """Return the mean and the standard deviation of each weight, from a sum over a grid."""
    axis = np.linspace(-12, 12, 401)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log = log_posterior(grid)
    mass = np.exp(log - log.max())
    mean = np.average(grid, axis=0, weights=mass)
    return np.stack([mean, np.sqrt(np.average((grid - mean) ** 2, axis=0, weights=mass))])


def test_nuts_finds_the_posterior_of_a_logistic_regression(url, count) -> None:
    log1pexp = pullback.pytensor.remote("log1pexp", url=url)
    with pm.Model():
        weights = pm.Normal("weights", 0, WIDTH, shape=2)
        pm.Potential("likelihood", -log1pexp(-PASSED * pt.dot(FEATURES, weights)).sum())
        trace = pm.sample(draws=500, tune=300, chains=2, cores=1, random_seed=1, progressbar=False)
    requests, steps = count(), int(trace.sample_stats["n_steps"].sum())
    draws = trace.posterior["weights"].to_numpy().reshape(-1, 2)
    assert not trace.sample_stats["diverging"].to_numpy().any()
    mean, deviation = moments()
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.2 * deviation.max())
    np.testing.assert_allclose(draws.std(0), deviation, rtol=0.2)
    # A step of the sampler takes the value and its gradient at a point: one request. Tuning takes steps, too.
    assert steps < requests < 4 * steps
