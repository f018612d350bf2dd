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
# # A first op and its verdict
#
# You write an op with a gradient of your own, see a check find a wrong gradient, and serve the right one. You need
# [Pullback with the service](../install.md), and matplotlib for a plot. Stop a `pullback serve` that still runs: this
# notebook starts its own, on port 8000.
#
#     pip install ".[serve]" matplotlib
#
# `pullback new` writes the page of an op that works, $y = x^3$ with the gradient $3x^2$:

# %%
import atexit
import subprocess

import matplotlib.pyplot as plt
import numpy as np

import pullback


def run(command, lines=None):
    done = subprocess.run(command.split(), capture_output=True, text=True)
    print("\n".join(done.stdout.splitlines()[:lines]))


run("pullback new cube")

# %% [markdown]
# A page is a Python file. These are its functions; `vjp` is the gradient, multiplied by the cotangent `dy`:

# %%
from pathlib import Path

page = Path("my_ops/cube.py")
print(page.read_text().split("def reference")[0].strip())

# %% [markdown]
# ## Is the gradient right?
#
# `pullback check` needs no service. It compares the gradient with numeric derivatives of `forward` that have error
# bars, at both orders, in every mode and dtype:

# %%
run("pullback check my_ops")

# %% [markdown]
# Now make the gradient wrong where x is negative, as a forgotten sign does. The first finding says where, by how much,
# and what the number should be:

# %%
right = page.read_text()
wrong = right.replace("return 3 * x * x * dy", "return 3 * x * abs(x) * dy")
page.write_text(wrong)
run("pullback check my_ops", lines=5)

# %% [markdown]
# ## Serve it, and look
#
# `pullback serve my_ops` starts the service on loopback. It serves the wrong page too, because an author's gradient is what the author
# wrote; `numeric` is the derivative that the service measures.


# %%
def start():
    command = ["pullback", "serve", "my_ops"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    atexit.register(server.terminate)
    line = server.stdout.readline().strip()
    assert line, "port 8000 is in use"
    print(line)
    return server


server = start()

# %% alt="Left: the gradient of the page, 3x|x|, falls below 0 where x is negative; the numeric derivative lies on 3x². Right: the difference of the two is 6x² where x is negative and 0 elsewhere."
url = "http://127.0.0.1:8000"
x = np.linspace(-2, 2, 41)
with pullback.Client(url) as client:
    op = client.op("cube")
    author = op.gradients(x).gradients[0]["x"]
    numeric = op.numeric({"x": x}).derivatives["x"]

figure, (left, right_axes) = plt.subplots(
    1, 2, figsize=(8, 3), layout="constrained"
)
left.plot(x, author, label="gradient of the page")
left.plot(x, numeric, ".", label="numeric derivative")
left.legend(frameon=False)
right_axes.plot(x, numeric - author)
left.set(xlabel="x", title="dy/dx")
right_axes.set(xlabel="x", title="difference")
plt.show()

# %% [markdown]
# ## Put it right
#
# With the right page and a new service, the difference is within the error bars, and the second order is exact too:

# %%
server.terminate()
server.wait()
page.write_text(right)
server = start()

# %%
with pullback.Client(url) as client:
    op = client.op("cube")
    author = op.gradients(x, order=2).gradients
print("largest error of 3x²:", np.abs(author[0]["x"] - 3 * x**2).max())
print("largest error of 6x: ", np.abs(author[1]["x"] - 6 * x).max())
assert np.allclose(author[0]["x"], 3 * x**2)
server.terminate()

# %% [markdown]
# [Add an op](../add-an-op.md) explains every part of a page, and [gradient checks](../gradient-checks.md) how a verdict
# is reached.
