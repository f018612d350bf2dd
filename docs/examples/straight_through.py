"""Train a network of neurons that are -1 or 1, with the gradient that the op ``sign`` passes straight through.

The derivative of sign is 0, so backpropagation alone would learn nothing. With a file name as the argument, the program
draws the points and the network's opinion (it then needs matplotlib).
"""

import sys

import torch

import pullback.torch

sign = pullback.torch.remote("sign")


class Bits(torch.nn.Module):
    """A network with two layers of neurons that are -1 or 1."""

    def __init__(self):
        """Make the layers."""
        super().__init__()
        self.first, self.second, self.last = torch.nn.Linear(2, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, 1)

    def forward(self, x):
        """Return the logit of each point."""
        return self.last(sign(self.second(sign(self.first(x)))))[:, 0]


def moons(count):
    """Return points on two half circles, and the circle of each."""
    angles, circle = torch.rand(count) * torch.pi, torch.arange(count) % 2
    points = torch.stack([torch.cos(angles), torch.sin(angles)], 1) * (1 - 2 * circle)[:, None]
    return points + circle[:, None] * torch.tensor([1.0, 0.5]) + 0.1 * torch.randn(count, 2), circle


def accuracy(net, points, circle):
    """Return the share of the points that the network gets right."""
    with torch.no_grad():
        return ((net(points) > 0) == (circle > 0)).float().mean().item()


def draw(file, net, points, circle):
    """Draw the points over the network's opinion."""
    from matplotlib import pyplot  # noqa: PLC0415 - only for the picture

    x, y = torch.linspace(-1.6, 2.6, 220), torch.linspace(-1.2, 1.7, 150)
    grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1).reshape(-1, 2)
    with torch.no_grad():
        opinion = torch.sigmoid(net(grid)).reshape(150, 220)
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    axes.imshow(opinion, extent=(-1.6, 2.6, -1.2, 1.7), origin="lower", cmap="RdBu", alpha=0.6, vmin=0, vmax=1)
    axes.scatter(*points.T, c=circle, cmap="RdBu", s=8, edgecolors="#333333", linewidths=0.3)
    axes.set_axis_off()
    figure.savefig(file, dpi=100)


torch.manual_seed(0)
points, circle = moons(400)
net = Bits()
optimiser = torch.optim.Adam(net.parameters(), 0.01)
print("more than 95 % right before:", accuracy(net, points, circle) > 0.95)
for _ in range(100):
    optimiser.zero_grad()
    torch.nn.functional.binary_cross_entropy_with_logits(net(points), circle.float()).backward()
    optimiser.step()
print("more than 95 % right after:", accuracy(net, points, circle) > 0.95)
if len(sys.argv) > 1:
    draw(sys.argv[1], net, points, circle)
