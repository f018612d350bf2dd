"""``tensorflow.python.ops.linalg.linalg_impl``, private: the functions that TensorFlow exports as ``tf.linalg``."""
