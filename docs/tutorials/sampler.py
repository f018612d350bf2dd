# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A sampler on a remote gradient
#
# NUTS needs the gradient of the log posterior at every step. Here it comes from an op of a service, and PyMC samples
# with it as with a function of its own. You need a service and two packages:
#
#     pullback serve
#     pip install ".[pytensor]" pymc matplotlib
#
# Three coins have come up heads $k$ times in $n$ throws. With a uniform prior, the probability $p$ of heads has a Beta
# posterior, so we know what the sampler must find. In the logit $\theta = \log\frac{p}{1-p}$ the log posterior is
#
# $$(k+1)\,\theta - (n+2)\,\log(1 + e^\theta),$$
#
# and $\log(1 + e^\theta)$ is the op `log1pexp`, which is stable for every $\theta$.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from scipy import stats

import pullback.pytensor

heads, throws = np.array([1, 7, 30]), np.array([4, 10, 40])
# The service is that of PULLBACK_URL, by default http://127.0.0.1:8000.
log1pexp = pullback.pytensor.remote("log1pexp")

with pm.Model():
    theta = pm.Flat("theta", shape=3)
    pm.Potential(
        "posterior", ((heads + 1) * theta - (throws + 2) * log1pexp(theta)).sum()
    )
    pm.Deterministic("p", pm.math.sigmoid(theta))
    trace = pm.sample(
        draws=500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False
    )

# %% [markdown]
# Each step takes the value and the gradient at a point, in one request:

# %%
p = trace.posterior["p"].to_numpy().reshape(-1, 3)
exact = stats.beta(heads + 1, throws - heads + 1)
print("steps of the sampler:", int(trace.sample_stats["n_steps"].sum()))
print("divergences:         ", int(trace.sample_stats["diverging"].sum()))
print("means found:         ", p.mean(0).round(3))
print("means of Beta:       ", exact.mean().round(3))
print("deviations found:   ", p.std(0).round(3))
print("deviations of Beta:  ", exact.std().round(3))
assert np.abs(p.mean(0) - exact.mean()).max() < 0.03
assert np.abs(p.std(0) / exact.std() - 1).max() < 0.15

# %% alt="Three histograms of samples of p, each under the density of its Beta distribution, which they follow. The more throws, the narrower."
grid = np.linspace(0, 1, 201)
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
for coin, density in enumerate(exact.pdf(grid[:, None]).T):
    axes.hist(
        p[:, coin], bins=40, range=(0, 1), density=True, alpha=0.4, color=f"C{coin}"
    )
    axes.plot(
        grid, density, color=f"C{coin}", label=f"{heads[coin]} of {throws[coin]}"
    )
axes.set(xlabel="p", ylabel="density")
axes.legend(frameon=False, title="heads")
plt.show()

# %% [markdown]
# [Remote ops in frameworks](../frameworks.md#pytensor-and-pymc) says what else PyTensor can do with an op.
