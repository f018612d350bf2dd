"""The part of ``tf.autograph`` in use."""

from tensorflow.autograph import experimental as experimental

def set_verbosity(level: int, alsologtostdout: bool = False) -> None: ...
