#!/usr/bin/env bash
# TensorFlow 2.21.0: a custom gradient that was saved in a SavedModel cannot be used behind tf.gather.
#
# Differentiated in the process that defines it, y = tf.gather(f(x), [1, 1, 0]) has the gradient that f declares. Saved
# with experimental_custom_gradients=True and loaded again, the same function raises: the gradient function of the
# SavedModel takes tensors, and tf.gather passes IndexedSlices. Seen:
#
#   before: [2. 4.]
#   after: TypeError: Binding inputs to tf.function failed due to `missing a required argument: 'arg_2'`. ...
#
# Exits with 0 while the loaded function raises, else with 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - "$folder/saved" <<'PYTHON'
import sys

import tensorflow as tf


@tf.custom_gradient
def f(x):
    return x * x, lambda dy: 2 * tf.convert_to_tensor(dy)


class Model(tf.Module):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([2], tf.float32, name="x")])
    def serve(self, x):
        return {"y": tf.gather(f(x), [1, 1, 0])}


def gradient(function):
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x=x)["y"]
    return tape.gradient(y, x).numpy()


model = Model()
print("before:", gradient(model.serve))
options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
tf.saved_model.save(model, sys.argv[1], signatures=model.serve, options=options)
loaded = tf.saved_model.load(sys.argv[1])
try:
    print("after:", gradient(loaded.signatures["serving_default"]))
except TypeError as error:
    print("after: TypeError:", str(error)[:100])
else:
    sys.exit(1)
PYTHON
