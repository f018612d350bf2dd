#!/usr/bin/env bash
# TensorFlow 2.21.0: the second derivatives of the variance of tf.nn.moments are wrong, in eager and in graphs: the mean
# counts as a constant. So are those of everything that normalises by it, such as LayerNormalization of Keras. With
# tf.math.reduce_variance, they are right: 2/n (δ - 1/n).
#
# Seen, for three numbers: moments [0.667 0. 0.], reduce_variance [0.444 -0.222 -0.222]. Exits with 0 if this is still
# so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import numpy as np
import tensorflow as tf


def row_of_hessian(variance):
    x = tf.constant([0.5, -1.0, 2.0], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = variance(x)
        first = inner.gradient(y, x)[0]
    return outer.gradient(first, x).numpy()


moments, expected = row_of_hessian(lambda x: tf.nn.moments(x, [0])[1]), row_of_hessian(tf.math.reduce_variance)
print("moments", moments.round(3), "reduce_variance", expected.round(3))
is_right = np.allclose(expected, [4 / 9, -2 / 9, -2 / 9])
raise SystemExit(0 if is_right and np.allclose(moments, [2 / 3, 0, 0]) else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
