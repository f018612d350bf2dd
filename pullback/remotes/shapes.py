"""The shapes of an op's outputs, from its contract and the shapes of its inputs: this needs no request."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from pullback.catalogue import Contract, Slot
from pullback.dtypes import COMPLEX
from pullback.errors import BadArgument

Shape: TypeAlias = tuple[int, ...]
Pattern: TypeAlias = Sequence[str | int]
ELLIPSIS = "..."


class _AnySize(int):
    """A size that is not known yet: it equals every size."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__

    def __repr__(self) -> str:
        return "?"


@dataclass(frozen=True)
class TensorType:
    """The shape and the dtype of an array."""

    shape: Shape
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @classmethod
    def of(cls, array: Any) -> "TensorType":
        """Return the type of an array of any framework whose dtypes are those of NumPy."""
        return cls(tuple(array.shape), np.dtype(array.dtype))

    @classmethod
    def symbolic(cls, shape: Iterable[int | None], dtype: Any) -> "TensorType":
        """Return the type of an array in a graph; a size that is not known yet is ``None``."""
        return cls(tuple(_AnySize() if size is None else size for size in shape), np.dtype(dtype))

    @property
    def static_shape(self) -> tuple[int | None, ...]:
        """The shape, with ``None`` for sizes that are not known yet."""
        return tuple(None if isinstance(size, _AnySize) else size for size in self.shape)


def input_types(contract: Contract, shapes: Mapping[str, Any]) -> list[TensorType]:
    """Return the types of all inputs for shapes by name, each a number or a sequence; floats are the widest there are.

    Inputs whose shape is fixed need none. Raises ``BadArgument`` for a name that is not an input, for a shape that is
    missing, and for one that is not of sizes.
    """
    names = [slot.name for slot in contract.inputs]
    if unknown := [name for name in shapes if name not in names]:
        raise BadArgument(f"shapes: expected inputs of {contract.name} ({', '.join(names)}), got {', '.join(unknown)}")
    return [TensorType(_given_shape(contract, slot, shapes), _widest(slot)) for slot in contract.inputs]


def _given_shape(contract: Contract, slot: Slot, shapes: Mapping[str, Any]) -> Shape:
    fixed = tuple(size for size in slot.shape if isinstance(size, int))
    if slot.name not in shapes and len(fixed) == len(slot.shape):
        return fixed
    given = shapes.get(slot.name)
    sizes: Any = (given,) if isinstance(given, int) else given
    if not isinstance(sizes, Sequence) or not all(
        isinstance(size, int) and size >= 0 for size in cast(Sequence[Any], sizes)
    ):
        raise BadArgument(
            f"shapes: {contract.name}: {slot.name}: expected a sequence of sizes for {_text(slot.shape)}, got {given!r}"
        )
    return tuple(cast(Sequence[int], sizes))


def _widest(slot: Slot) -> np.dtype[Any]:
    """Return the dtype for numbers that are all float64: the widest float if there is one, else the first."""
    floats = [name for name in ("float64", "float32", "float16") if name in slot.dtypes]
    return np.dtype((floats or slot.dtypes)[0])


def output_types(contract: Contract, attrs: Mapping[str, Any], inputs: Sequence[TensorType]) -> list[TensorType]:
    """Return the types of the outputs for inputs of these types.

    A symbol has the same size everywhere; integer attributes are symbols too. Raises ``BadArgument`` for shapes that do
    not match the contract, and for an op whose output shapes depend on values.
    """
    given = {name: attrs.get(name, schema.get("default")) for name, schema in contract.attr_schemas.items()}
    # Integer attributes are symbols of shapes too.
    dims = {name: (int(x),) for name, x in given.items() if hasattr(x, "__index__") and not isinstance(x, bool)}
    for slot, found in zip(contract.inputs, inputs, strict=True):
        if not _matches(slot.shape, found.shape, dims):
            raise BadArgument(
                f"{contract.name}: {slot.name}: shape mismatch: expected {_text(slot.shape)}"
                f"{_bound(slot.shape, dims)}, got {list(found.shape)}"
            )
    pairs = [(slot, found.dtype) for slot, found in zip(contract.inputs, inputs, strict=True) if len(slot.dtypes) > 1]
    variables = {_parts(slot): _part(dtype) for slot, dtype in reversed(pairs)}
    return [TensorType(_resolved(contract, slot, dims), _dtype(slot, variables)) for slot in contract.outputs]


def _matches(pattern: Pattern, shape: Shape, dims: dict[str, Shape]) -> bool:
    """Match a shape with its symbols, and bind new symbols in ``dims``."""
    free = len(shape) - len(pattern) + 1
    if ELLIPSIS in pattern:
        at = pattern.index(ELLIPSIS)
        pieces = [shape[i : i + 1] for i in range(at)], [shape[i : i + 1] for i in range(at + free, len(shape))]
        bound = [*pieces[0], shape[at : at + free], *pieces[1]]
    else:
        bound = [(size,) for size in shape]
    if free < 0 or len(bound) != len(pattern):
        return False
    return all(
        part == ((symbol,) if isinstance(symbol, int) else dims.setdefault(symbol, part))
        for symbol, part in zip(pattern, bound, strict=True)
    )


def _resolved(contract: Contract, slot: Slot, dims: Mapping[str, Shape]) -> Shape:
    shape: list[int] = []
    for symbol in slot.shape:
        if isinstance(symbol, str) and symbol not in dims:
            raise BadArgument(
                f"{contract.name}: the shape of output {slot.name} depends on values: expected a shape that follows "
                f"from those of the inputs, got {_text(slot.shape)}"
            )
        shape.extend((symbol,) if isinstance(symbol, int) else dims[symbol])
    return tuple(shape)


def _dtype(slot: Slot, variables: Mapping[tuple[str, ...], np.dtype[Any]]) -> np.dtype[Any]:
    default = np.dtype(slot.dtypes[0])
    if default.kind == "c":
        return np.result_type(variables.get(_parts(slot), default), np.complex64)
    return variables.get(_parts(slot), default)


def _parts(slot: Slot) -> tuple[str, ...]:
    """Return the dtypes of a slot, for complex ones those of their parts: both have one type variable."""
    return tuple([COMPLEX.get(dtype, dtype) for dtype in slot.dtypes])


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(COMPLEX.get(dtype.name, dtype))


def refuse_complex(contract: Contract, what: str) -> None:
    """Raise ``BadArgument`` for an op with complex numbers, for a framework that has none."""
    if any(COMPLEX.keys() & slot.dtypes for slot in (*contract.inputs, *contract.outputs)):
        cure = "take the real and the imaginary part as inputs and outputs of another op"
        raise BadArgument(f"{contract.name}: it has complex numbers, which {what} lack; {cure}")


def _text(pattern: Pattern) -> str:
    return f"[{', '.join(map(str, pattern))}]"


def _bound(pattern: Pattern, dims: Mapping[str, Shape]) -> str:
    known = [f"{symbol} = {dims[symbol][0]}" for symbol in map(str, pattern) if len(dims.get(symbol, ())) == 1]
    return f" with {', '.join(known)}" if known else ""
