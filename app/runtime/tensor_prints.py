"""What ``tf.print`` prints goes to Python's stderr: a service bounds that, and TensorFlow's own descriptor not."""

import ctypes
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import tensorflow as tf

LIBRARY = "libtensorflow_cc.so.2"


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)
def _write(text: bytes) -> None:
    # A whole line at once: the next call may come on a thread that Python sees for the first time.
    line = text.decode(errors="backslashreplace").removesuffix("\n")
    with suppress(Exception):  # the code of an op may have replaced the file
        sys.stderr.write(f"{line}\n")


@cache
def install() -> None:
    """Take what ``tf.print`` prints, on any thread and to either stream; what it writes to files stays there."""
    library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib(), LIBRARY)))
    library.TF_RegisterLogListener(_write)
