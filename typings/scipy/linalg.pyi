"""The part of ``scipy.linalg`` in use."""

from typing import Any

from numpy.typing import ArrayLike, NDArray

def expm(A: ArrayLike) -> NDArray[Any]: ...
