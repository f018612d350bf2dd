#!/usr/bin/env bash
# TensorFlow 2.21.0, on the CPU: the gradient of max_pool3d goes to all numbers that are nearly the largest.
#
# The kernel MaxPool3DGrad gives the cotangent of a window to each number that is less than 1e-5 below the largest one,
# whatever the size of the numbers: eight numbers that are equal get eight times what a window may pass on, and a volume
# of numbers below 1e-5 is pooled as if each were the largest. max_pool2d and XLA choose one number, by all bits. Seen,
# for a window of 8 numbers and the cotangent 1, the sum of the gradient: 1.0 where one is larger by 1e-4; 7.0 by 5e-6;
# 8.0 where all are equal; 8.0 for the first window times 1e-3. XLA has 1.0 each time.
#
# Exits with 0 if all this is still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import numpy as np
import tensorflow as tf


def pulled(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.max_pool3d(x, 2, 2, "VALID")
    return tape.gradient(y, x)


compiled = tf.function(pulled, jit_compile=True)
sums = []
for larger, scale in ((1e-4, 1.0), (5e-6, 1.0), (0.0, 1.0), (1e-4, 1e-3)):
    numbers = scale * np.array([1, 1 + larger, 1 - larger, 1, 1, 1, 1, 1], np.float32)
    x = tf.constant(numbers.reshape(1, 2, 2, 2, 1), tf.float32)
    sums.append([float(tf.reduce_sum(call(x))) for call in (pulled, compiled)])
    print(f"larger by {larger:g}, times {scale:g}: eager {sums[-1][0]}, XLA {sums[-1][1]}")
raise SystemExit(0 if sums == [[1.0, 1.0], [7.0, 1.0], [8.0, 1.0], [8.0, 1.0]] else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
