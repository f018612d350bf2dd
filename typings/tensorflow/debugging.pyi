"""The part of ``tf.debugging`` in use. XLA drops every assertion, so do not rely on one to refuse a value."""

from typing import Any

from tensorflow import Tensor
from tensorflow._aliases import TensorLike

def assert_all_finite(x: TensorLike, message: str, name: str | None = None) -> Tensor: ...
def assert_equal(
    x: TensorLike, y: TensorLike, message: str | None = None, summarize: int | None = None, name: str | None = None
) -> Any: ...
def assert_greater_equal(
    x: TensorLike, y: TensorLike, message: str | None = None, summarize: int | None = None, name: str | None = None
) -> Any: ...
def check_numerics(tensor: TensorLike, message: str, name: str | None = None) -> Tensor: ...
