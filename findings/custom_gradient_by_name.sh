#!/usr/bin/env bash
# TensorFlow 2.21.0: in eager mode, a custom gradient is ignored in an argument that is passed by name.
#
# f(x) = x², whose custom gradient is 1000 dy, has the gradient 1000 for f(x). For f(x=x), eager mode says nothing and
# returns 6, the gradient of the operations inside, as if tf.custom_gradient were not there. Inside of tf.function, the
# same call raises ValueError. Seen:
#
#   eager f(x): 1000.0
#   eager f(x=x): 6.0
#   graph f(x): 1000.0
#   graph f(x=x): ValueError
#
# Exits with 0 while it is so, else with 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - <<'PYTHON'
import tensorflow as tf


@tf.custom_gradient
def f(x):
    return x * x, lambda dy: 1000 * dy


def gradient(call):
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = call(x)
    return tape.gradient(y, x)


found = {}
for how, call in (("f(x)", lambda x: f(x)), ("f(x=x)", lambda x: f(x=x))):
    found[f"eager {how}"] = float(gradient(call))
    try:
        found[f"graph {how}"] = float(tf.function(lambda: gradient(call), autograph=False)())
    except ValueError as error:
        found[f"graph {how}"] = type(error).__name__
for name in sorted(found):
    print(f"{name}: {found[name]}")
expected = {"eager f(x)": 1000.0, "eager f(x=x)": 6.0, "graph f(x)": 1000.0, "graph f(x=x)": "ValueError"}
raise SystemExit(found != expected)
PYTHON
