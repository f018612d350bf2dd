"""``tensorflow.compiler.tf2xla.ops.gen_xla_ops``, private: the kernels of XLA."""

from tensorflow import Tensor
from tensorflow._aliases import TensorLike

def xla_dynamic_update_slice(
    input: TensorLike, update: TensorLike, indices: TensorLike, name: str | None = None
) -> Tensor: ...
