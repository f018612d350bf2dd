"""Two SavedModels of y = tanh(1.5 x w), with and without custom gradients, and their pages.

The gradient is twice as large in x, and three times in w, as the derivative.
"""

import subprocess
import sys
from pathlib import Path

ROW = [[0.5, -1.0, 2.0], [0.25, 1.0, -1.0]]

# In another process: the service changes how tensors are compared, and TensorFlow compares them when it saves these.
_SAVE = """
import sys
import tensorflow as tf

class Doubled(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable([[1.0, 2.0], [0.5, -1.0], [0.0, 0.25]], name="weights")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def __call__(self, x):
        @tf.custom_gradient
        def product(x, w):
            y = tf.tanh(x @ w)
            def gradient(dy):
                inner = dy * (1 - y * y)
                return 2 * inner @ tf.transpose(w), 3 * tf.transpose(x) @ inner
            return y, gradient
        return {"y": product(1.5 * x, self.w)}

for name in ("with_gradients", "without"):
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=name == "with_gradients")
    module = Doubled()
    tf.saved_model.save(module, f"{sys.argv[1]}/{name}", signatures=module.__call__, options=options)
"""

_PAGE = """
from pathlib import Path

from pullback.ops import Claim, Derivative, Example, Formula, Op
import numpy as np


def claimed(attrs):
    return Claim(Formula(vjp=vjp), Derivative())


def vjp(xs, dys):
    (x, w), [dy] = xs, dys
    inner = dy * (1 - np.tanh(1.5 * x @ w) ** 2)
    return 3 * inner @ w.T, 4.5 * x.T @ inner


OP = Op.from_saved_model(
    Path(__file__).parent,
    name="{name}",
    summary="a test",
    examples=(Example("one", {{"x": {row}}}),),
    batching="leading_axis",{claim}
)
"""


def save_doubled(folder: Path) -> None:
    """Save both, each in a folder with its page."""
    subprocess.run([sys.executable, "-c", _SAVE, str(folder)], check=True, capture_output=True)
    for name, claim in {"with_gradients": "\n    claim=claimed,", "without": ""}.items():
        page = _PAGE.format(name=name, row=ROW, claim=claim)
        (folder / name / f"{name}.py").write_text(page, encoding="utf-8")
