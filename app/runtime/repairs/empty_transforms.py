"""Fourier transforms of no numbers, such as the real one back from a single frequency, which ``fft_length`` can mend.

TensorFlow 2.21 takes a length of 0 for a transform to or from real numbers, and the process then ends.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Private, because TensorFlow's own functions, such as ``tf.signal.stft``, call these functions there.
from tensorflow.python.ops import gen_spectral_ops
from tensorflow.python.ops.signal import fft_ops  # for the same reason

from app.runtime.repairs.replacing import replace
from ops import Tensor

WHY = "a Fourier transform of length 0; fft_length sets another one"


def install() -> None:
    """Let transforms of length 0 be invalid arguments; call this before any program is built."""
    kernels: Any = gen_spectral_ops
    module: Any = fft_ops
    for rank, suffix in enumerate(("", "2d", "3d"), start=1):
        for name, wrapper in (("rfft" + suffix, module._rfft_wrapper), ("irfft" + suffix, module._irfft_wrapper)):
            kernel = getattr(kernels, name)
            if not hasattr(kernel, "__wrapped__"):
                mended = guarded(kernel)
                replace(kernel, mended, name.upper())
                replace(getattr(module, name), wrapper(mended, rank, name))


def guarded(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a kernel that refuses a length of 0, unless it has no numbers to transform."""

    def transform(input: Any, fft_length: Any, *args: Any, **named: Any) -> Tensor:
        x = tf.convert_to_tensor(input)
        lengths, count = tf.get_static_value(fft_length), x.shape.num_elements()
        if count == 0 or (lengths is not None and 0 not in list(lengths)):
            return kernel(x, fft_length, *args, **named)
        if lengths is not None and count is not None:
            raise tf.errors.InvalidArgumentError(None, None, WHY)
        # Only outside of XLA, which knows all sizes.
        is_valid = tf.logical_or(tf.size(x) == 0, tf.reduce_all(tf.not_equal(fft_length, 0)))
        with tf.control_dependencies([tf.debugging.assert_equal(is_valid, True, WHY)]):
            return kernel(tf.identity(x), fft_length, *args, **named)

    return transform
