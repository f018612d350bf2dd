#!/usr/bin/env bash
# tf-nightly 2.23.0.dev20261026: tf.tanh in float64 has a custom gradient in Python, which knows the derivative 1.7e-17
# at 20, where tanh rounds to 1. So
# - a gradient_override_map of Tanh has no effect in a graph of version 1: the gradient is that of an IdentityN;
# - tf.autodiff.ForwardAccumulator in eager does not use it: the tangent at 20 is 0, in a function it is 1.7e-17;
# - the name that the caller gives is that of an inner op;
# - the gradient of a SavedModel without custom gradients is an error: a TypeError in the process that has saved it, a
#   LookupError in others.
# In float32, and in TensorFlow 2.21.0, the map has an effect, the tangents are equal, the name is that of the result,
# and the gradient is computed.
#
# Seen: override 1.7e-17, eager 0.0, in a function 1.7e-17, name IdentityN:0, saved TypeError. Exits with 0 if this is
# still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tf-nightly==2.23.0.dev20261026 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import sys

import tensorflow as tf


@tf.RegisterGradient("Ten")
def ten(op, dy):
    return 10.0 * dy


with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
    x = tf.constant(20.0, tf.float64)
    with graph.gradient_override_map({"Tanh": "Ten"}):
        y = tf.tanh(x, name="mine")
    override, name = float(session.run(tf.compat.v1.gradients(y, x)[0])), y.name


def tangent(function):
    x = tf.constant(20.0, tf.float64)
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as tangents:
        y = function(x)
    return float(tangents.jvp(y))


def gradient(function):
    x = tf.constant(20.0, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


module = tf.Module()
module.tanh = tf.function(tf.tanh, input_signature=[tf.TensorSpec([], tf.float64)])
options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
tf.saved_model.save(module, sys.argv[1], options=options)
try:
    saved = str(float(gradient(tf.saved_model.load(sys.argv[1]).tanh)))
except (LookupError, TypeError) as error:
    saved = type(error).__name__
eager, traced = tangent(tf.tanh), tangent(tf.function(tf.tanh))
print(f"override {override:.2g}, eager {eager}, in a function {traced:.2g}, name {name}, saved {saved}")
is_so = override < 1 and eager == 0 < traced < 1e-16 and name == "IdentityN:0" and saved == "TypeError"
raise SystemExit(0 if is_so else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py" "$folder/saved"
