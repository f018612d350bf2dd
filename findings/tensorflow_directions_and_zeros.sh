#!/usr/bin/env bash
# TensorFlow 2.21.0, on the CPU: numbers that are wrong in graphs alone, without a word.
#
# 1. The second order of max pooling with stride 1 is 0 where the cotangent is computed in the graph: the kernel
#    MaxPoolGradGrad writes its result into the memory of the cotangent, and clears it before it reads it. Mode eager
#    is right. Seen: eager 5.5437, graph 0.0.
# 2. tf.vectorized_map through tf.TensorArray.gather exchanges the axes of the elements and of the map. With two
#    elements of two rows, the shapes fit. Seen: [[0, 2], [1, 3]] for [[0, 1], [2, 3]].
# 3. tf.vectorized_map through the gradient of tf.sparse.segment_sum with num_segments takes rows behind the last
#    segment for rows of the next direction. Seen: the second direction is 0 for 1.
#
# Exits with 0 if all this is still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
x, t = (tf.constant(rng.normal(size=(1, 3, 3, 2))) for _ in range(2))
options = {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}


def second(x, t):
    y = tf.raw_ops.MaxPool(input=x, **options)
    return tf.raw_ops.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=tf.sin(t), **options)


eager, graph = (float(tf.reduce_sum(tf.abs(f(x, t)))) for f in (second, tf.function(second)))
print("max pooling: eager", eager, "graph", graph)


def gathered(rows):
    return tf.TensorArray(rows.dtype, 2).unstack(rows).gather([0, 1])


rows = tf.reshape(tf.range(4.0), [2, 2])
found = tf.vectorized_map(gathered, rows).numpy()
print("gather:", found.tolist(), "for", rows.numpy().tolist())


def through(dy):
    data = tf.ones([2])
    with tf.GradientTape() as tape:
        tape.watch(data)
        y = tf.sparse.segment_sum(data, [0, 1], [0, 0], num_segments=2)
    return tape.gradient(y, data, dy)


dys = tf.constant([[1.0, 0.0], [1.0, 0.0]])
segments = tf.vectorized_map(through, dys).numpy()
print("segments:", segments.tolist(), "for [[1, 1], [1, 1]]")
is_as_seen = graph == 0 < eager and (found != rows.numpy()).any() and (segments != 1).any()
raise SystemExit(0 if is_as_seen else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
