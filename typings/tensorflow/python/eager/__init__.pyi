"""``tensorflow.python.eager``, private."""

from tensorflow.python.eager import cancellation as cancellation
