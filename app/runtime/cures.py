"""What to change in an op for errors of TensorFlow that do not say it."""

import re

CURES = (
    (
        re.compile(
            r"Could not find device for node|No registered '\w+' OpKernel|not in (?:the )?list of allowed values"
        ),
        'no kernel for this dtype: declare dtypes=("float32", "float64"), or those that it has, on the slots',
    ),
    (
        re.compile(r"as a Python `?bool`? is not allowed|Python bool is not allowed"),
        "a condition on a tensor needs tf.where or tf.cond, not if, and or or",
    ),
    (
        re.compile(r"Cannot convert a symbolic|has no attribute 'numpy'|NumPy call .*not supported"),
        "a graph has no values: use functions of TensorFlow, not of NumPy",
    ),
)


def cure(text: str) -> str:
    """Return what to change for an error with this text; "" if nothing is known."""
    return next((advice for pattern, advice in CURES if pattern.search(text)), "")
