"""``tf.debugging``, as far as it is used here. XLA drops every assertion: let none of them be what refuses a value."""

from typing import Any

from tensorflow import Tensor
from tensorflow._aliases import TensorLike

def assert_all_finite(x: TensorLike, message: str, name: str | None = None) -> Tensor: ...
def assert_equal(
    x: TensorLike, y: TensorLike, message: str | None = None, summarize: int | None = None, name: str | None = None
) -> Any: ...
def check_numerics(tensor: TensorLike, message: str, name: str | None = None) -> Tensor: ...
