"""The memory of tensors on a device, lists of tensors included, as loops keep them for their gradients."""

from contextlib import suppress

import tensorflow as tf

from ops import Tensor

# What the elements of a list may be, the most frequent ones first: a list does not tell.
_ELEMENTS = (
    *(tf.variant, tf.float32, tf.float64, tf.int32, tf.int64, tf.bool, tf.float16, tf.bfloat16),
    *(tf.complex128, tf.complex64, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.uint32, tf.uint64),
)


def size_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor. Of a list, the elements count as much as the largest of the first and the last."""
    if tensor.dtype == tf.variant:
        return _size_of_list(tensor)
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size


def _size_of_list(tensor: Tensor) -> int:
    with suppress(tf.errors.InvalidArgumentError):  # a variant that is not a list has no known size
        length = int(tf.raw_ops.TensorListLength(input_handle=tensor))
        return length * max((size_of(_item(tensor, index)) for index in {0, length - 1} if length), default=0)
    return 0


def _item(tensor: Tensor, index: int) -> Tensor:
    """Return an element of a list, none of whose dtypes or shapes is known."""
    for dtype in _ELEMENTS:
        with suppress(tf.errors.InvalidArgumentError):
            return tf.raw_ops.TensorListGetItem(input_handle=tensor, index=index, element_shape=-1, element_dtype=dtype)
    return tf.zeros((), tf.bool)
