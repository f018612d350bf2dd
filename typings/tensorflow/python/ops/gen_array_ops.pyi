"""``tensorflow.python.ops.gen_array_ops``, private: the functions that run kernels of arrays."""
