"""Names only in this stub: the types that TensorFlow accepts for "a tensor". Import them only for type checking."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray
from tensorflow import DType, IndexedSlices, Operation, Tensor, TensorShape, Variable

TensorLike: TypeAlias = Tensor | Variable | NDArray[Any] | np.generic | complex | str | bytes | Sequence[Any]
DTypeSpec: TypeAlias = DType | DTypeLike | str
ShapeSpec: TypeAlias = TensorShape | Tensor | Sequence[int | None] | Sequence[Tensor] | Sequence[int | Tensor]
StaticShape: TypeAlias = TensorShape | Sequence[int | None] | None
Axis: TypeAlias = int | Sequence[int] | Tensor | None
Gradient: TypeAlias = Tensor | IndexedSlices | None
Fetch: TypeAlias = Tensor | Operation
GradientFunction: TypeAlias = Callable[..., Any]
