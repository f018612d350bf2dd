#!/usr/bin/env bash
# TensorFlow 2.21.0: the third derivative of x ** 2 at 0 is NaN, the fourth of x ** 3 too, in eager and in graphs. The
# gradient of x ** 0 is computed as 0 * x ** -1. With tf.square and x * x, it is 0.
#
# Seen: tf.pow nan, x * x 0.0. Exits with 0 if this is still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import tensorflow as tf


def third(function):
    x = tf.constant(0.0)
    with tf.GradientTape() as a:
        a.watch(x)
        with tf.GradientTape() as b:
            b.watch(x)
            with tf.GradientTape() as c:
                c.watch(x)
                y = function(x)
            first = c.gradient(y, x)
        second = b.gradient(first, x)
    found = a.gradient(second, x, unconnected_gradients="zero")
    return float(found)


power, product = third(lambda x: tf.pow(x, 2.0)), third(lambda x: x * x)
print("tf.pow", power, "x * x", product)
raise SystemExit(0 if power != power and product == 0 else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
