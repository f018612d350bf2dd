"""Symbolic shapes, such as ``("N", "C")`` and ``("...", "M")``: matching, resolving, and text."""

from collections.abc import Sequence

from app.autodiff.point import Dims
from ops import ANY_SHAPE


def shape_text(pattern: Sequence[str | int]) -> str:
    """Return a symbolic shape as text: ``[N, C]``, ``[..., M, M]``."""
    return f"[{', '.join(map(str, pattern))}]"


def matches(pattern: Sequence[str | int], shape: tuple[int, ...], dims: dict[str, int | tuple[int, ...]]) -> bool:
    """Match a shape with its symbols, and bind new symbols in ``dims``."""
    if pattern == ANY_SHAPE:
        return dims.setdefault("...", shape) == shape
    if "..." in pattern:
        at, free = pattern.index("..."), len(shape) - len(pattern) + 1
        if free < 0:
            return False
        rest = (*shape[:at], *shape[at + free :])
        middle = shape[at : at + free]
        return dims.setdefault("...", middle) == middle and matches((*pattern[:at], *pattern[at + 1 :]), rest, dims)
    if len(pattern) != len(shape):
        return False
    for symbol, size in zip(pattern, shape, strict=True):
        if size != (symbol if isinstance(symbol, int) else dims.setdefault(symbol, size)):
            return False
    return True


def expectation(pattern: Sequence[str | int], dims: Dims) -> str:
    """Return the shape that a symbolic one stands for, as far as its symbols are bound, as text."""
    shape = resolved_shape(pattern, dims)
    if shape is not None:
        return f"{list(shape)}, that is {shape_text(pattern)}"
    known = ", ".join(f"{symbol} = {dims[str(symbol)]}" for symbol in pattern if str(symbol) in dims)
    return shape_text(pattern) + (f" with {known}" if known else "")


def resolved_shape(pattern: Sequence[str | int], dims: Dims) -> tuple[int, ...] | None:
    """Return the shape of a symbolic one, or ``None`` if a symbol is not bound."""
    if pattern == ANY_SHAPE and isinstance(shape := dims.get("..."), tuple):
        return shape
    sizes: list[int] = []
    for symbol in pattern:
        size = symbol if isinstance(symbol, int) else dims.get(symbol)
        if size is None:
            return None
        sizes.extend(size if isinstance(size, tuple) else (size,))
    return tuple(sizes)
