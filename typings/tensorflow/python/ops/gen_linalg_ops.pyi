"""``tensorflow.python.ops.gen_linalg_ops``, private: the functions that run kernels of linear algebra."""
