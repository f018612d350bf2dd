"""``tensorflow.python.ops.gen_nn_ops``, private: the functions that call kernels, by the names that gradients use."""
