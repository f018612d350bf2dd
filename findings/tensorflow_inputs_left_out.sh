#!/usr/bin/env bash
# TensorFlow 2.21.0: pad has no gradient in its constant, and batch normalization none in the moments it is given.
#
# The results depend on these inputs, and the gradient functions return None for them. If nothing else of the model leads
# there, a caller sees None; else the part is missing, and nothing says so. Seen: of sum(pad(x, c)) + c, with
# three numbers added, the derivative in c is 1.0 instead of 4.0; that of the sum of a batch normalization in the mean
# that it is given is None, by differences -2.0. The labels of softmax_cross_entropy_with_logits are left out of the
# second order: the mixed derivative in a logit and its label is 0.0 instead of -0.81.
#
# Exits with 0 if all this is still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import tensorflow as tf

c = tf.constant(0.5)
with tf.GradientTape() as tape:
    tape.watch(c)
    total = tf.reduce_sum(tf.pad(tf.zeros(2), [[1, 2]], constant_values=c)) + c
of_constant = float(tape.gradient(total, c))

x = tf.reshape(tf.range(4.0), [1, 2, 2, 1])


def normalized(mean):
    y, *_ = tf.compat.v1.nn.fused_batch_norm(x, [1.0], [0.0], mean, [4.0], is_training=False)
    return tf.reduce_sum(y)


mean = tf.constant([0.5])
with tf.GradientTape() as tape:
    tape.watch(mean)
    total = normalized(mean)
of_mean = tape.gradient(total, mean)
difference = float(normalized(mean + 0.5) - normalized(mean - 0.5))

logits, labels = tf.constant([[0.1, 0.4, 1.2]]), tf.constant([[0.2, 0.3, 0.5]])
with tf.GradientTape() as outer:
    outer.watch(labels)
    with tf.GradientTape() as inner:
        inner.watch(logits)
        loss = tf.nn.softmax_cross_entropy_with_logits(labels, logits)
    slope = inner.gradient(loss, logits)[0, 0]
mixed = float(outer.gradient(slope, labels)[0, 0])
expected = float(tf.nn.softmax(logits)[0, 0]) - 1

print(f"pad: {of_constant}, expected 4.0; mean: {of_mean}, by differences {difference:.2f}; labels: {mixed}, expected {expected:.2f}")
is_so = of_constant == 1 and of_mean is None and difference < -1 and mixed == 0 and expected < -0.5
raise SystemExit(0 if is_so else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
