"""The part of ``tf.nn`` in use."""

from collections.abc import Sequence

from tensorflow import Tensor
from tensorflow import sigmoid as sigmoid
from tensorflow import tanh as tanh
from tensorflow._aliases import TensorLike

def avg_pool(
    input: TensorLike,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str,
    data_format: str | None = None,
    name: str | None = None,
) -> Tensor: ...
def bias_add(
    value: TensorLike, bias: TensorLike, data_format: str | None = None, name: str | None = None
) -> Tensor: ...
def conv1d(
    input: TensorLike,
    filters: TensorLike,
    stride: int | Sequence[int],
    padding: str,
    data_format: str = "NWC",
    dilations: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor: ...
def conv2d(
    input: TensorLike,
    filters: TensorLike,
    strides: int | Sequence[int],
    padding: str | Sequence[Sequence[int]],
    data_format: str = "NHWC",
    dilations: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Tensor: ...
def elu(features: TensorLike, name: str | None = None) -> Tensor: ...
def gelu(features: TensorLike, approximate: bool = False, name: str | None = None) -> Tensor: ...
def l2_loss(t: TensorLike, name: str | None = None) -> Tensor: ...
def log_softmax(logits: TensorLike, axis: int | None = None, name: str | None = None) -> Tensor: ...
def max_pool(
    input: TensorLike,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str | Sequence[Sequence[int]],
    data_format: str | None = None,
    name: str | None = None,
) -> Tensor: ...
def relu(features: TensorLike, name: str | None = None) -> Tensor: ...
def relu6(features: TensorLike, name: str | None = None) -> Tensor: ...
def silu(features: TensorLike, beta: float = 1.0) -> Tensor: ...
def softmax(logits: TensorLike, axis: int | None = None, name: str | None = None) -> Tensor: ...
def softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, axis: int = -1, name: str | None = None
) -> Tensor: ...
def softplus(features: TensorLike, name: str | None = None) -> Tensor: ...
def softsign(features: TensorLike, name: str | None = None) -> Tensor: ...
def sparse_softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, name: str | None = None
) -> Tensor: ...
