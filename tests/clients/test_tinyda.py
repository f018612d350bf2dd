"""tinyDA's MALA, through its ``UmBridgeModel``: it samples a known posterior with Pullback's gradients."""

import sys
from pathlib import Path

import numpy as np
import tinyDA as tda
import umbridge
from scipy.stats import multivariate_normal

sys.path.append(str(Path(__file__).parent))
from posterior import is_recovered, moments

# y = log(1 + e^x) was measured, with this deviation; x has a standard normal prior.
MEASURED, DEVIATION = np.array([0.5, 1.5]), 0.4


def log_posterior(x: np.ndarray) -> np.ndarray:
    misfits = (np.logaddexp(0, x) - MEASURED) / DEVIATION
    return -(misfits**2).sum(axis=-1) / 2 - (x**2).sum(axis=-1) / 2


def test_mala_finds_the_posterior_of_a_measurement(url):
    np.random.seed(1)
    calls = []

    class CountingModel(umbridge.HTTPModel):
        """The stock client, which also counts its calls."""

        def gradient(self, *arguments):
            calls.append("gradient")
            return super().gradient(*arguments)

    model = tda.UmBridgeModel(CountingModel(url, "log1pexp"), umbridge_config={"shape": [2]})
    prior = multivariate_normal(np.zeros(2), np.eye(2))
    likelihood = tda.GaussianLogLike(MEASURED, DEVIATION**2 * np.eye(2))
    posterior = tda.Posterior(prior, likelihood, model)
    chains = tda.sample(
        posterior,
        tda.MALA(scaling=0.3, adaptive=True),
        iterations=3000,
        n_chains=1,
        initial_parameters=np.zeros(2),
        force_sequential=True,
        force_progress_bar=False,
    )
    assert len(calls) > 2000
    draws = np.stack([link.parameters for link in chains["chain_0"]])[None, 500:]
    expected = moments(log_posterior, -6, 6, dimensions=2, points=601)
    assert is_recovered(draws, expected)
    # The test can fail: a posterior that is half a deviation off is not recovered.
    assert not is_recovered(draws, expected + np.stack([expected[1] / 2, np.zeros(2)]))
