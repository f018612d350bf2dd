#!/usr/bin/env bash
# TensorFlow 2.21.0: a term computed by tf.py_function has a first order, and is missing in the second without an error.
#
# The gradient of tf.py_function is a call of Python whose only inputs are the cotangents: it finds the inputs on a tape
# that it has kept. So the gradient counts as one that does not depend on the inputs. Seen, in mode eager and in a graph:
# for x**3 + x**3 at 2, one of them in tf.py_function, the second derivative is 12.0 instead of 24.0.
#
# Exits with 0 if all this is still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import tensorflow as tf


def derivatives(x):
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.py_function(lambda x: x**3, [x], tf.float64) + x**3
        first = inner.gradient(y, x)
    return first, outer.gradient(first, x)


x = tf.constant(2.0, tf.float64)
eager, graph = ([float(each) for each in call(x)] for call in (derivatives, tf.function(derivatives)))
print(f"first and second derivative: eager {eager}, graph {graph}, expected [24.0, 24.0]")
raise SystemExit(0 if eager == graph == [24, 12] else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
