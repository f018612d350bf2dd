"""Names for tensors that are passed without one, where the contract of the op leaves no choice."""

from collections.abc import Mapping
from typing import Any

from pullback.arrays import ArrayLike, Arrays
from pullback.catalogue import Contract
from pullback.errors import BadArgument


def is_named(value: Arrays | ArrayLike | None) -> bool:
    """Report whether a value has arrays by name; ``None`` stands for none."""
    # A check for an abstract class takes ten times as long.
    return value is None or isinstance(value, (dict, Mapping))


def named(field: str, value: Any, contract: Contract) -> Arrays:
    """Return an array by the only name that the field ``inputs``, ``cotangents``, ... of a request may have.

    Raises ``BadArgument`` if there are several.
    """
    slots = contract.outputs if field == "cotangents" else contract.inputs
    names = [slot.name for slot in slots if field == "inputs" or slot.differentiable]
    if len(names) != 1:
        example = ", ".join(f"{name!r}: ..." for name in names)
        got = f"a {type(value).__name__} without a name"
        raise BadArgument(f"{field}: {contract.name} has {len(names)}, so expected {{{example}}}, got {got}")
    return {names[0]: value}
