"""``tf.raw_ops``, as far as it is used here: they take keywords alone."""

from collections.abc import Sequence
from typing import Any

from tensorflow import Tensor
from tensorflow._aliases import DTypeSpec, TensorLike

def SymbolicGradient(
    *, input: Sequence[TensorLike], Tout: Sequence[DTypeSpec], f: Any, name: str | None = None
) -> list[Tensor]: ...
