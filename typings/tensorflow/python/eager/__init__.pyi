"""``tensorflow.python.eager``, private."""

from tensorflow.python.eager import cancellation as cancellation
from tensorflow.python.eager import context as context
from tensorflow.python.eager import core as core
from tensorflow.python.eager import record as record
