"""How TensorFlow is set up, before anything imports it.

Without oneDNN: with it, TensorFlow 2.21 corrupts its heap in second derivatives of float32 convolutions under
``vectorized_map``, and its kernels add up in an order that depends on the machine's threads.
"""

import os

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# A greeting, and hints on how to build it, are no news.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
