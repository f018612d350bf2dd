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
# # A straight-through network
#
# A neuron that is -1 or 1 has derivative 0 almost everywhere, so nothing could train it. A *straight-through* gradient
# pretends that it is the identity where $|x| \le 1$:
#
# $$y = \operatorname{sign}(x), \qquad dx = \begin{cases} dy & |x| \le 1 \\ 0 & \text{elsewhere.} \end{cases}$$
#
# The op `sign` of a service has this gradient, and PyTorch trains with it. You need a service and two packages:
#
#     pullback serve
#     pip install ".[torch]" matplotlib

# %%
import matplotlib.pyplot as plt
import torch

import pullback.torch

# The service is that of PULLBACK_URL, by default http://127.0.0.1:8000.
sign = pullback.torch.remote("sign")
x = torch.linspace(-2, 2, 9, requires_grad=True)
y = sign(x)
y.sum().backward()
print("x       ", x.tolist())
print("sign    ", y.tolist())
print("gradient", x.grad.tolist())
assert torch.equal(x.grad, (x.abs() <= 1).float())

# %% [markdown]
# The network has two layers of such neurons, so its answer is constant on polygons. It learns which points are inside a
# ring:

# %%
torch.manual_seed(0)
points = 2 * torch.rand(300, 2) - 1
radius = points.norm(dim=1)
inside = ((radius > 0.35) & (radius < 0.75)).float()

first, second, last = (
    torch.nn.Linear(2, 64),
    torch.nn.Linear(64, 32),
    torch.nn.Linear(32, 1),
)
network = torch.nn.Sequential(first, sign, second, sign, last, torch.nn.Flatten(0))
optimiser = torch.optim.Adam(network.parameters(), 0.02)
losses = []
for _ in range(150):
    optimiser.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        network(points), inside
    )
    loss.backward()
    optimiser.step()
    losses.append(loss.item())

with torch.no_grad():
    right = ((network(points) > 0) == (inside > 0)).float().mean().item()
print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at the end")
print(f"points on the right side: {100 * right:.1f} %")
assert right > 0.9

# %% alt="Left: points of a square in two colours over what the network says; it has drawn a ring with borders made of straight lines. Right: the loss falls from 0.7 to below 0.2."
axis = torch.linspace(-1, 1, 161)
with torch.no_grad():
    grid = torch.cartesian_prod(axis, axis)
    said = torch.sigmoid(network(grid)).reshape(161, 161).T

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
left.imshow(
    said,
    extent=(-1, 1, -1, 1),
    origin="lower",
    cmap="RdBu",
    alpha=0.7,
    vmin=0,
    vmax=1,
)
left.scatter(
    *points.T, c=inside, cmap="RdBu", s=8, edgecolors="#333333", linewidths=0.3
)
left.set(xticks=[], yticks=[])
right.plot(losses)
right.set(xlabel="step", title="loss")
plt.show()

# %% [markdown]
# [Custom gradients](../custom-gradients.md) has other gradients that are not derivatives, and what each mechanism of
# TensorFlow does with them.
