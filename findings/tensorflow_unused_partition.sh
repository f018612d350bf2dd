#!/usr/bin/env bash
# TensorFlow 2.21.0: in a graph, a partition of dynamic_partition that nothing uses gets zeros of another one's size.
#
# The gradient stitches the cotangents of all partitions together; that of an unused one is zeros of its size. The
# graph optimizer takes all partitions for equally large: where the size of the used one follows from its cotangent, it
# makes zeros of this size. So the vjp of one of two partitions is right in eager mode, and with the optimizer off, and
# raises InvalidArgumentError in tf.function where the sizes differ. Seen, for three numbers, two of them in the
# partition, and the cotangent (1, 5): eager [1, 0, 5], and so without the optimizer; in tf.function "data[1].shape =
# [2] does not start with indices[1].shape = [1]".
#
# Exits with 0 if all this is still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import tensorflow as tf


def pulled(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        kept, _ = tf.dynamic_partition(x, [0, 1, 0], 2)
    return tape.gradient(kept, x, tf.constant([1.0, 5.0]))


x = tf.constant([1.0, 2.0, 3.0])
eager = pulled(x).numpy().tolist()
try:
    optimized = str(tf.function(pulled)(x).numpy())
except tf.errors.InvalidArgumentError as error:
    optimized = next(line for line in str(error).splitlines() if "data[1]" in line)
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
plain = tf.function(pulled)(x).numpy().tolist()
print(f"eager {eager}; tf.function: {optimized}; without the optimizer {plain}")
is_so = eager == plain == [1, 0, 5] and "does not start with" in optimized
raise SystemExit(0 if is_so else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
