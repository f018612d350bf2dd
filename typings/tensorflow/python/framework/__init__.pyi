"""``tensorflow.python.framework``, private."""

from tensorflow.python.framework import ops as ops
