"""The part of ``tf.random`` in use."""

from tensorflow import Tensor
from tensorflow._aliases import DTypeSpec, ShapeSpec, TensorLike

def set_seed(seed: int) -> None: ...
def normal(
    shape: ShapeSpec,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeSpec = ...,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor: ...
def uniform(
    shape: ShapeSpec,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeSpec = ...,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor: ...
def stateless_normal(
    shape: ShapeSpec, seed: TensorLike, mean: TensorLike = 0.0, stddev: TensorLike = 1.0, dtype: DTypeSpec = ...
) -> Tensor: ...
def stateless_uniform(
    shape: ShapeSpec, seed: TensorLike, minval: TensorLike = 0, maxval: TensorLike | None = None, dtype: DTypeSpec = ...
) -> Tensor: ...
