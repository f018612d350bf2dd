"""``tensorflow.python.ops.gen_image_ops``, private: the functions that run kernels of images."""
