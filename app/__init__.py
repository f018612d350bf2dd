"""The service: registered ops and their derivatives over HTTP."""

import os

# Before anything imports TensorFlow; ``pullback.ops._environment`` says why.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
