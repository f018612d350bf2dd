"""``tensorflow.python.ops.nn_fused_batch_norm_grad``, private: the gradient of fused batch normalization."""
