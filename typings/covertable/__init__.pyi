from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from covertable import criteria as criteria

def make_async(
    factors: Mapping[str, Sequence[Any]], strength: int = 2, *, criterion: ModuleType = ..., salt: str = ""
) -> Iterator[dict[str, Any]]: ...
