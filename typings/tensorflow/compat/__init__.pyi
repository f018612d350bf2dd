"""The part of ``tf.compat`` in use."""

from tensorflow.compat import v1 as v1
