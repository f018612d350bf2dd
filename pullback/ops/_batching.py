"""Rows: which axes of an op's inputs and outputs are independent, so that requests may share a call."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from pullback.ops._fields import shown
from pullback.ops._slots import ANY, ANY_SHAPE, Input, Output, Shape

Batching = Literal["elementwise", "leading_axis", "leading_axes", "none"]
"""What is independent: each number, each row of the leading axis, each row of the leading axes ``...``, or nothing."""
BATCHINGS: tuple[Batching, ...] = get_args(Batching)
BatchingOf: TypeAlias = Callable[[Any], Batching]
"""Returns the batching of an op for its validated attributes."""


def check_batching(
    batching: object, shared: Sequence[str], inputs: Sequence[Input], outputs: Sequence[Output], *, varies: bool
) -> None:
    """Raise ``ValueError`` if the slots of an op do not have the rows that ``batching`` and ``shared`` declare.

    ``shared`` names the inputs that all rows use. If the batching ``varies`` with the attributes, there may be shared
    inputs beside a batching without rows.
    """
    if batching not in BATCHINGS:
        raise ValueError(f"batching: expected one of {', '.join(map(repr, BATCHINGS))}, got {shown(batching)}")
    names = [slot.name for slot in inputs]
    if unknown := [name for name in shared if name not in names]:
        raise ValueError(f"shared: expected names of inputs ({', '.join(names)}), got {shown(unknown[0])}")
    has_rows = batching in ("leading_axis", "leading_axes")
    if shared and not has_rows and not varies:
        cure = 'leave shared out, or declare batching="leading_axis" or "leading_axes"'
        raise ValueError(f"shared: expected no names with batching={batching!r}, got {shared}; {cure}")
    if len(set(shared)) == len(names):
        raise ValueError("shared: expected at least one input with rows, got all inputs")
    slots = [*(slot for slot in inputs if slot.name not in shared), *outputs]
    if batching == "elementwise" and any(slot.shape != ANY_SHAPE for slot in (*inputs, *outputs)):
        raise ValueError(f"an elementwise op has inputs and outputs of one shape, {ANY_SHAPE}")
    if batching == "leading_axes" and (wrong := [slot for slot in slots if slot.shape[:1] != ANY_SHAPE]):
        cure = 'write shape=("...", ...), or name the input in shared'
        raise ValueError(f"{_expected(batching, ANY_SHAPE)}, got {wrong[0].shape} of {wrong[0].name!r}; {cure}")
    if batching == "leading_axis":
        _check_leading_axis(slots)
    rows = slots[0].shape[0] if has_rows else None
    if wrong := [slot for slot in inputs if slot.name in shared and rows in slot.shape]:
        expected = f"shared inputs without the axis of rows, {rows!r}"
        raise ValueError(f"shared: expected {expected}, got {wrong[0].shape} of {wrong[0].name!r}; leave it out")


def _check_leading_axis(slots: Sequence[Input | Output]) -> None:
    """Raise ``ValueError`` unless all slots begin with the same symbol, which is in no other place."""
    for slot in slots:
        if not slot.shape:
            raise ValueError("an op with batching='leading_axis' has inputs and outputs with a leading axis, got ()")
        first, *others = slot.shape
        if first == ANY:
            cure = 'declare batching="leading_axes" if all of them are independent'
            raise ValueError(f"{_expected('leading_axis', ('N',))}, got {slot.shape} of {slot.name!r}; {cure}")
        if isinstance(first, int) or first != slots[0].shape[0] or first in others:
            cure = "write the same symbol for the rows of all, and only there, or name the input in shared"
            raise ValueError(f"{_expected('leading_axis', ('N',))}, got {slot.shape} of {slot.name!r}; {cure}")


def _expected(batching: Batching, begin: Shape) -> str:
    return f"an op with batching={batching!r} has inputs and outputs whose shapes begin with {begin[0]!r}"
