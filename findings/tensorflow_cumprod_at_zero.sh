#!/usr/bin/env bash
# TensorFlow 2.21.0: the gradient of cumprod is 0 in a factor that is 0, and so is the second order of reduce_prod.
#
# The gradient is computed as a sum of products, divided by the factor; where that is 0, the quotient counts as 0. The
# first order of reduce_prod is right, as it multiplies the other factors; its gradient in turn is that of cumprod. Seen:
# for the factors 3, 0, 2, the derivative of the last cumulative product in the second factor is 0.0 instead of 6.0; for
# the factors 0, 0, 3, the mixed second derivative of the product in the first two is 0.0 instead of 3.0.
#
# Exits with 0 if all this is still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import tensorflow as tf

x = tf.constant([3.0, 0.0, 2.0])
with tf.GradientTape() as tape:
    tape.watch(x)
    last = tf.math.cumprod(x)[2]
slope = tape.gradient(last, x).numpy()

x = tf.constant([0.0, 0.0, 3.0])
with tf.GradientTape() as outer:
    outer.watch(x)
    with tf.GradientTape() as inner:
        inner.watch(x)
        product = tf.reduce_prod(x)
    first = inner.gradient(product, x)
mixed = float(outer.jacobian(first, x)[0, 1])

print(f"cumprod: {slope}, expected [0. 6. 0.]; the mixed derivative of the product: {mixed}, expected 3.0")
is_so = slope.tolist() == [0, 0, 0] and mixed == 0
raise SystemExit(0 if is_so else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
