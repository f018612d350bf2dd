"""``tf.experimental.dlpack``. The process dies where a buffer is not aligned to 64 bytes."""

from typing import Any

from tensorflow import Tensor

def from_dlpack(dlcapsule: Any) -> Tensor: ...
def to_dlpack(tf_tensor: Tensor) -> Any: ...
