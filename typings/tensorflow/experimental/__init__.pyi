"""``tf.experimental``, as far as it is used here."""

from tensorflow.experimental import dlpack as dlpack
