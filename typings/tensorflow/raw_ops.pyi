"""The part of ``tf.raw_ops`` in use: all of them take only keywords."""

from collections.abc import Sequence
from typing import Any

from tensorflow import Tensor
from tensorflow._aliases import DTypeSpec, ShapeSpec, TensorLike

def AddV2(*, x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor: ...
def BroadcastGradientArgs(*, s0: TensorLike, s1: TensorLike, name: str | None = None) -> tuple[Tensor, Tensor]: ...
def Cast(*, x: TensorLike, DstT: DTypeSpec, name: str | None = None) -> Tensor: ...
def Conv2D(
    *,
    input: TensorLike,
    filter: TensorLike,
    strides: Sequence[int],
    padding: str,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Sequence[int] = [],
    data_format: str = "NHWC",
    dilations: Sequence[int] = [1, 1, 1, 1],
    name: str | None = None,
) -> Tensor: ...
def Conv2DBackpropFilter(
    *,
    input: TensorLike,
    filter_sizes: ShapeSpec,
    out_backprop: TensorLike,
    strides: Sequence[int],
    padding: str,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Sequence[int] = [],
    data_format: str = "NHWC",
    dilations: Sequence[int] = [1, 1, 1, 1],
    name: str | None = None,
) -> Tensor: ...
def Conv2DBackpropInput(
    *,
    input_sizes: ShapeSpec,
    filter: TensorLike,
    out_backprop: TensorLike,
    strides: Sequence[int],
    padding: str,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Sequence[int] = [],
    data_format: str = "NHWC",
    dilations: Sequence[int] = [1, 1, 1, 1],
    name: str | None = None,
) -> Tensor: ...
def Equal(
    *, x: TensorLike, y: TensorLike, incompatible_shape_error: bool = True, name: str | None = None
) -> Tensor: ...
def Mul(*, x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor: ...
def NotEqual(
    *, x: TensorLike, y: TensorLike, incompatible_shape_error: bool = True, name: str | None = None
) -> Tensor: ...
def PartitionedCall(
    *, args: Sequence[TensorLike], Tout: Sequence[DTypeSpec], f: Any, name: str | None = None
) -> list[Tensor]: ...
def Shape(*, input: TensorLike, out_type: DTypeSpec = ..., name: str | None = None) -> Tensor: ...
def StatelessRandomUniformV2(
    *,
    shape: ShapeSpec,
    key: TensorLike,
    counter: TensorLike,
    alg: TensorLike,
    dtype: DTypeSpec = ...,
    name: str | None = None,
) -> Tensor: ...
def SymbolicGradient(
    *, input: Sequence[TensorLike], Tout: Sequence[DTypeSpec], f: Any, name: str | None = None
) -> list[Tensor]: ...
def TensorListGetItem(
    *, input_handle: TensorLike, index: TensorLike, element_shape: TensorLike, element_dtype: DTypeSpec
) -> Tensor: ...
def TensorListLength(*, input_handle: TensorLike, name: str | None = None) -> Tensor: ...
def Sub(*, x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor: ...
