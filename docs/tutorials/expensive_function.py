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
# # An expensive function, with a handle and a job
#
# The eigenvalues of a matrix take a while; a product with their derivatives takes less. A *handle* pays for the forward
# pass once. A *job* computes what takes longer than a connection should last. You need a service and the client:
#
#     pullback serve
#     pip install ./pullback matplotlib
#
# The matrix is that of a string of 300 masses between two walls, with 2 on the diagonal and -1 beside it. Its
# eigenvalues and eigenvectors are known, and so is the gradient of an eigenvalue in the matrix:
#
# $$\lambda_k = 2 - 2\cos\frac{k\pi}{n+1}, \qquad
#   v_k(i) = \sqrt{\tfrac{2}{n+1}}\,\sin\frac{ik\pi}{n+1}, \qquad
#   \frac{\partial\lambda_k}{\partial A} = v_k v_k^T.$$

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import pullback

n = 300
a = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
i, zeros = np.arange(1, n + 1), np.zeros((n, n))


def vector(k):
    return np.sqrt(2 / (n + 1)) * np.sin(i * k * np.pi / (n + 1))


client = pullback.Client()  # of PULLBACK_URL, by default http://127.0.0.1:8000
eig = client.op("self_adjoint_eig")

# %% [markdown]
# ## A handle
#
# `linearize` computes the eigenvalues and keeps the forward pass on the server. Each `vjp` at this point is then a
# backward pass alone:

# %%
modes = range(1, 11)


def cotangents(k):
    return {"w": np.eye(n)[k - 1], "v": zeros}


def seconds(vjp):
    vjp(1)  # the first product of a shape is slower
    began = time.perf_counter()
    found = [vjp(k) for k in modes]
    return time.perf_counter() - began, found


with eig.linearize({"a": a}) as at:
    with_handle, gradients = seconds(lambda k: at.vjp(cotangents(k)).gradients["a"])
    eigenvalues = at.outputs["w"]
without, _ = seconds(lambda k: eig.vjp({"a": a}, cotangents=cotangents(k)))

exact = 2 - 2 * np.cos(i * np.pi / (n + 1))
errors = [
    np.abs(found - np.outer(vector(k), vector(k))).max()
    for k, found in zip(modes, gradients)
]
print(f"largest error of an eigenvalue: {np.abs(eigenvalues - exact).max():.1e}")
print(f"largest error of ten gradients: {max(errors):.1e}")
print(
    f"ten gradients: {1e3 * with_handle:.0f} ms with the handle, {1e3 * without:.0f} ms without"
)
assert max(errors) < 1e-9

# %% [markdown]
# The diagonal of a gradient says how much the eigenvalue grows with the stiffness at each mass. It is the square of the
# shape in which the string vibrates:

# %% alt="Left: the eigenvalues rise from 0 to 4 along the closed form. Right: the diagonals of the gradients of eigenvalues 1, 2 and 5 have one, two and five humps, on the squares of the sine waves."
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(i, exact, color="#bbbbbb", linewidth=6)
left.plot(i, eigenvalues)
left.set(xlabel="k", title="eigenvalues")
for k in (1, 2, 5):
    right.plot(i, vector(k) ** 2, color="#bbbbbb", linewidth=6)
    right.plot(i, np.diag(gradients[k - 1]), label=f"eigenvalue {k}")
right.set(xlabel="mass", title="diagonal of the gradient")
right.legend(framealpha=0.9)
plt.show()

# %% [markdown]
# ## A job
#
# With `background`, any method returns a `Job` at once, and the connection is free. This one computes how each
# eigenvalue of 40 smaller matrices changes with each of their numbers: 69,120 derivatives. The masses differ by chance.

# %%
rng = np.random.default_rng(0)
small = np.array(
    [
        np.diag(2 + rng.random(12)) - np.eye(12, k=1) - np.eye(12, k=-1)
        for _ in range(40)
    ]
)
job = eig.jacobian({"a": small}, of=["w"], points=True, background=True)
print("job", job.id[:8], "...")
print("state:", job.wait().state)
blocks = job.result().jacobian["w"]["a"]
print("Jacobians:", blocks.shape)

# %% [markdown]
# The trace of a matrix is the sum of its eigenvalues. So the sum of their gradients is the identity, at each point:

# %%
total = blocks.sum(axis=1)
print(
    f"largest difference from the identity: {np.abs(total - np.eye(12)).max():.1e}"
)
assert np.allclose(total, np.eye(12))
client.close()

# %% [markdown]
# [Expensive functions](../expensive-functions.md) says how long handles and jobs live, and who may see them.
