"""``tf.compat``, as far as it is used here."""

from tensorflow.compat import v1 as v1
