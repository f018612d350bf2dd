#!/usr/bin/env bash
# TensorFlow 2.21.0: SymbolicGradient, the op of gradients that C++ registers, fails where the optimiser of graphs is off.
#
# The gradient of sin by REGISTER_OP_GRADIENT is right in a tf.function with the default options. With
# disable_meta_optimizer, which should change how fast a graph runs and nothing else, the same function raises: the
# optimiser inlines SymbolicGradient, and the kernel that runs it otherwise does not find the function. Seen:
#
#   optimised: 0.5403023
#   unoptimised: NotFoundError [[{{node SymbolicGradient}}]] [Op:__inference_gradient_27]
#
# Exits with 0 while the unoptimised function raises, else with 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - <<'PYTHON'
import sys

import tensorflow as tf

SPEC = tf.TensorSpec([], tf.float32)


def gradient_of_sin():
    primal = tf.function(tf.sin, input_signature=[SPEC], autograph=False).get_concrete_function()

    @tf.function(input_signature=[SPEC, SPEC], autograph=False)
    def gradient(x, dy):
        primal.add_to_graph()
        named = tf.compat.v1.NameAttrList(name=primal.name)
        return tf.raw_ops.SymbolicGradient(input=[x, dy], Tout=[x.dtype], f=named)[0]

    return gradient(tf.constant(1.0), tf.constant(1.0)).numpy()


print("optimised:", gradient_of_sin())
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
try:
    print("unoptimised:", gradient_of_sin())
except tf.errors.OpError as error:
    print("unoptimised:", type(error).__name__, error.message.splitlines()[-1].strip())
else:
    sys.exit(1)
PYTHON
