"""The part of ``scipy.sparse`` in use."""

from typing import Any

class coo_array:
    def __init__(self, arg: Any, shape: tuple[int, int]) -> None: ...

class csr_array:
    def __init__(self, arg: Any, shape: tuple[int, int]) -> None: ...
