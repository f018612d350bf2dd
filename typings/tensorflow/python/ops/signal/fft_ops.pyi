"""``tensorflow.python.ops.signal.fft_ops``, private: the functions that TensorFlow exports as ``tf.signal``."""
