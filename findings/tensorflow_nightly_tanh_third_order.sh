#!/usr/bin/env bash
# tf-nightly 2.23.0.dev20261026: the third derivative of tf.tanh in float64 is 0 at 0, and not -2, in eager, in graphs,
# compiled, and in graphs of version 1. A custom gradient in Python computes the first one from |x|, whose derivative is
# sign(x): at 0, that is 0, and so is what follows from it. In float32, and in TensorFlow 2.21.0, it is -2.
#
# Seen: float64 0.0 0.0 -0.0 0.0 float32 -2.0 -2.0 -2.0 -2.0. Exits with 0 if this is still so, and with 1 if the
# behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tf-nightly==2.23.0.dev20261026 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import tensorflow as tf


def derivative(x, order):
    if order == 0:
        return tf.tanh(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = derivative(x, order - 1)
    return tape.gradient(y, x)


def in_version_1(dtype):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant(0.0, dtype)
        y = tf.tanh(x)
        for _ in range(3):
            (y,) = tf.compat.v1.gradients(y, x)
        return float(session.run(y))


def third(dtype):
    x = tf.constant(0.0, dtype)
    ways = (lambda f: f, tf.function, lambda f: tf.function(f, jit_compile=True))
    return [float(way(lambda x: derivative(x, 3))(x)) for way in ways] + [in_version_1(dtype)]


wide, narrow = third(tf.float64), third(tf.float32)
print("float64", *wide, "float32", *narrow)
raise SystemExit(0 if wide == [0] * 4 and narrow == [-2] * 4 else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
