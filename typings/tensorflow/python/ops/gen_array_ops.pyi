"""``tensorflow.python.ops.gen_array_ops``, private: the functions that call kernels, by the names that gradients use."""
