"""``tensorflow.python.ops.gen_spectral_ops``, private: the functions that call kernels of Fourier transforms."""
