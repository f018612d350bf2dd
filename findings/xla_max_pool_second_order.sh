#!/usr/bin/env bash
# TensorFlow 2.21.0, XLA on the CPU: the second order of max pooling takes the number of another place.
#
# XLA's kernel MaxPoolGradGrad compares the numbers of a window as bfloat16, which has 8 bits. Of two that differ by less
# than that, it may choose the smaller one. The first order compares all bits, so a compiled gradient is right where its
# derivative is wrong. For the sum of y ** 3 over a window with 1 and 1 + 2 ** -10, and the direction (1, 2, 3, 4), the
# derivative of the gradient is 6 * 1.001 * 2 = 12.01 at the second number. Seen: 12.0117 in eager mode and in a graph,
# 6.0059, as if the first had been chosen, by XLA.
#
# Exits with 0 if all this is still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import tensorflow as tf

x = tf.reshape(tf.constant([1.0, 1.0 + 2**-10, 0.5, 0.25]), (1, 2, 2, 1))
direction = tf.reshape(tf.constant([1.0, 2.0, 3.0, 4.0]), x.shape)


def derivatives(x):
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.nn.max_pool2d(x, 2, 2, "VALID") ** 3)
        gradient = inner.gradient(y, x)
        along = tf.reduce_sum(gradient * direction)
    return tf.reshape(gradient, [-1])[1], tf.reshape(outer.gradient(along, x), [-1])[1]


found = {"eager": derivatives, "graph": tf.function(derivatives), "XLA": tf.function(derivatives, jit_compile=True)}
orders = {name: tuple(map(float, call(x))) for name, call in found.items()}
for name, (first, second) in orders.items():
    print(f"{name}: first order {first:.4f}, second {second:.4f}")
is_right = {name: abs(second - 12.0117) < 1e-3 for name, (_, second) in orders.items()}
are_first_right = all(abs(first - 3.0059) < 1e-3 for first, _ in orders.values())
raise SystemExit(0 if are_first_right and is_right == {"eager": True, "graph": True, "XLA": False} else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
