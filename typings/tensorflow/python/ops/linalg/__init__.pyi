"""``tensorflow.python.ops.linalg``, private."""
