"""What ``tf.print`` and ``tf.compat.v1.Print`` print goes to Python's stderr, whose rate the service bounds.

TensorFlow's kernels would write to the descriptor, which nothing bounds.
"""

import ctypes
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf

from ops import Tensor

_tensorflow: Any = tf
LIBRARY = "libtensorflow_cc.so.2"


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)
def _write(text: bytes) -> None:
    # A whole line at once: the next call may come on a thread that Python sees for the first time.
    line = text.decode(errors="backslashreplace").removesuffix("\n")
    with suppress(Exception):  # the code of an op may have replaced the file
        sys.stderr.write(f"{line}\n")


def _print(  # noqa: PLR0917 - the signature is TensorFlow's
    input_: Tensor,
    data: Sequence[Tensor],
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Do as ``tf.compat.v1.Print``, with the kernel of ``tf.print``, which does not count up to ``first_n``."""
    if first_n == 0:
        return tf.identity(input_, name)
    printed = _tensorflow.print(message or "", *data, sep="", summarize=summarize or 3)
    with tf.control_dependencies([] if printed is None else [printed]):
        return tf.identity(input_, name)


def _raw_print(*, input: Tensor, **options: Any) -> Tensor:
    """Do as ``tf.raw_ops.Print``."""
    return _print(input, **options)


@cache
def install() -> None:
    """Take what both print, on any thread and to either stream; what ``tf.print`` writes to files stays there.

    Call this before a page is imported.
    """
    _tensorflow.compat.v1.Print, _tensorflow.raw_ops.Print = _print, _raw_print
    library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib(), LIBRARY)))
    library.TF_RegisterLogListener(_write)
