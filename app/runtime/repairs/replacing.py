"""Replacement of a function of TensorFlow in every module that has it: many import the functions of others."""

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def replace(function: Callable[..., Any], mended: Any, raw_op: str = "") -> None:
    """Put ``mended`` in place of a function in TensorFlow's modules, and of the raw op with this name.

    Its ``__wrapped__`` is then the function, which marks that it is installed. Modules that are imported later take it
    from one of these.
    """
    mended.__wrapped__ = function
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "tensorflow":
            for key in [key for key, value in vars(module).items() if value is function]:
                setattr(module, key, mended)
    if raw_op:
        setattr(tf.raw_ops, raw_op, mended)
