"""The environment of TensorFlow, set before anything imports it.

oneDNN is off: with it, TensorFlow 2.21 corrupts its heap in second derivatives of float32 convolutions under
``vectorized_map``, and its kernels sum in an order that depends on the machine's threads.
"""

import os

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Silence the banner and the build hints.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
