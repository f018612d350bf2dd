#!/usr/bin/env bash
# TensorFlow 2.21.0: the gradient of bilinear resizing is right, and its jvp, made of two gradients, is 0.
#
# A jvp is the gradient of a vjp in its cotangent (the "double backward trick"), and so is a product with a Gauss-Newton
# matrix. The gradient of ResizeBilinear calls the kernel ResizeBilinearGrad, which TensorFlow declares to have no
# gradient, though it is linear in the cotangent: the result is None, or zeros where those are asked for. The
# same holds for fake quantization. Bicubic and nearest resizing raise a LookupError instead. Seen, for an image of
# four numbers that is resized to 3 x 3, and a tangent of ones: the function at the tangent is 1.0 everywhere; by two
# gradients 0.0; of bicubic resizing a LookupError for ResizeBicubicGrad.
#
# Exits with 0 if all this is still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import numpy as np
import tensorflow as tf

x = tf.constant([[[[0.1], [0.4]], [[0.2], [0.9]]]])
tangent = tf.ones_like(x)


def jvp(method):
    dy = tf.zeros([1, 3, 3, 1])
    with tf.GradientTape() as outer:
        outer.watch(dy)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.image.resize(x, (3, 3), method)
        dx = inner.gradient(y, x, dy)
    return outer.gradient(dx, dy, tangent, unconnected_gradients="zero")


linear = tf.image.resize(tangent, (3, 3)).numpy()
found = jvp("bilinear").numpy()
try:
    bicubic = str(jvp("bicubic"))
except LookupError as error:
    bicubic = f"LookupError: {error}"
print(f"the function at the tangent: {np.unique(linear)}, by two gradients: {np.unique(found)}, bicubic: {bicubic}")
is_so = np.allclose(linear, 1) and not found.any() and "ResizeBicubicGrad" in bicubic
raise SystemExit(0 if is_so else 1)
PYTHON
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/finding.py"
