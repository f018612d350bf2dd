"""``tensorflow.python.ops.signal``, private."""
