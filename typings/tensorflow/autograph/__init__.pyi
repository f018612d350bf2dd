"""``tf.autograph``, as far as it is used here."""

from tensorflow.autograph import experimental as experimental

def set_verbosity(level: int, alsologtostdout: bool = False) -> None: ...
