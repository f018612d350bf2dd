"""``tensorflow.python.ops.nn_impl``, private: the functions that TensorFlow exports as ``tf.nn``."""
