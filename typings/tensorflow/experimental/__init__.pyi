"""The part of ``tf.experimental`` in use."""

from tensorflow.experimental import dlpack as dlpack
