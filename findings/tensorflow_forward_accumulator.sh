#!/usr/bin/env bash
# TensorFlow 2.21.0: tf.autodiff.ForwardAccumulator ignores a tf.custom_gradient and says nothing: it differentiates the
# forward pass, in eager and in tf.function. tf.GradientTape uses the custom gradient, so forward and reverse mode of one
# function disagree.
#
# Seen: reverse 10.0, forward 6.0, forward in a function 6.0. Exits with 0 if this is still so, and with 1 if the
# behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import tensorflow as tf


@tf.custom_gradient
def square(x):
    return x * x, lambda dy: 10.0 * dy


def forward(x):
    with tf.autodiff.ForwardAccumulator(x, tf.constant(1.0)) as accumulator:
        y = square(x)
    return accumulator.jvp(y)


x = tf.constant(3.0)
with tf.GradientTape() as tape:
    tape.watch(x)
    y = square(x)
reverse, eager, graph = float(tape.gradient(y, x)), float(forward(x)), float(tf.function(forward)(x))
print("reverse", reverse, "forward", eager, "forward in a function", graph)
raise SystemExit(0 if (reverse, eager, graph) == (10.0, 6.0, 6.0) else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
