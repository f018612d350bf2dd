"""What to change in an op for errors of TensorFlow that do not say it."""

import re
from typing import NamedTuple


class Cure(NamedTuple):
    """A pattern of TensorFlow's messages and what to change; ``says_all``: the message adds nothing to it."""

    pattern: re.Pattern[str]
    advice: str
    says_all: bool = False


NO_KERNEL = re.compile(
    r"Could not find device for node|No registered '\w+' OpKernel for (?!XLA)|not in (?:the )?list of allowed value"
)
CURES = (
    Cure(
        NO_KERNEL,
        'TensorFlow has no kernel for this dtype: declare dtypes=("float32", "float64") on the slots, or those it has',
        says_all=True,
    ),
    Cure(
        re.compile(r"as a Python `?bool`? is not allowed"),
        "a condition on a tensor needs tf.where or tf.cond, not if, and or or",
    ),
    Cure(
        re.compile(r"Cannot convert a symbolic|has no attribute 'numpy'|NumPy call .*not supported"),
        "a graph has no values: use functions of TensorFlow, not of NumPy",
    ),
)


def lacks_kernel(text: str) -> bool:
    """Report whether TensorFlow has no kernel for a dtype."""
    return NO_KERNEL.search(text) is not None


def with_cure(text: str, message: str) -> str:
    """Return the message of an error with this text, after what to change, if that is known."""
    for cure in CURES:
        if cure.pattern.search(text):
            return cure.advice if cure.says_all else f"{cure.advice} ({message})"
    return message
