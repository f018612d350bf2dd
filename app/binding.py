"""Binding of a request to an op: its attributes, dtypes, shapes and values, in NumPy, before TensorFlow sees any.

How tensors are spelled is the format's affair: a ``Decode`` turns what stands below a name into an array of the dtype
that the op wants there.
"""

import logging
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from app.errors import Entry, Faults, Loc, OpFailed, Unprocessable, near, unprocessable, wrong
from app.tensors.casting import narrow
from app.tensors.dtypes import DTYPES
from app.validation import entries
from ops import Array, Attrs, Input, InvalidInput, Mode, Op, Output

Decode: TypeAlias = Callable[[Any, str, Loc], Array]
Dims: TypeAlias = Mapping[str, int | tuple[int, ...]]


log = logging.getLogger("pullback")

# Multiply-adds of one forward: half a minute or so on two cores.
MAX_COST = 1 << 38


@dataclass(frozen=True)
class Point:
    """Where an op is evaluated and differentiated: typed inputs and attributes, and how it runs there.

    ``dims`` holds what the symbols of the op's shapes stand for at this point; no answer has more numbers in it than
    ``max_elements``.
    """

    op: Op
    attrs: Attrs
    dtype: str
    inputs: Mapping[str, Array]
    dims: Dims
    mode: Mode
    device: str
    max_elements: int

    def differentiable(self, slots: Iterable[Input | Output]) -> tuple[str, ...]:
        """Return the names of those slots that derivatives reach."""
        return tuple(slot.name for slot in slots if self.op.is_differentiable(slot, self.dtype))

    def admit_work(self, times: int = 1) -> None:
        """Refuse work that would take minutes: ``times`` the op's, before any of it is done."""
        if (cost := times * self.cost) > MAX_COST:
            message = f"at this size op {self.op.name} takes {cost} multiply-adds, and no kernel can be interrupted"
            raise wrong(("inputs",), message, expected=f"at most {MAX_COST}", got=str(cost))

    def admit(self, elements: int, what: str) -> None:
        """Refuse an answer over the element limit, before any of it is computed."""
        if elements > self.max_elements:
            message = f"the {what} would have {elements} elements; ask for products, or parts of it (wrt, of)"
            raise wrong(("inputs",), message, expected=f"at most {self.max_elements} elements", got=str(elements))

    @property
    def cost(self) -> int:
        """The multiply-adds of one forward, roughly: what the op says, else one a number."""
        sizes = sum(x.size for x in self.inputs.values())
        if self.op.cost is None:
            return sizes
        with authored(self.op, "cost"):
            return max(sizes, self.op.cost(self.dims))

    def output_shape(self, output: Output) -> tuple[int, ...] | None:
        """Return the shape that the symbols give an output, ``None`` where they do not tell."""
        return resolved_shape(output.shape, self.dims)


def bind(
    op: Op,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    dtype: str | None,
    decode: Decode,
    *,
    mode: Mode,
    **run: Any,
) -> Point:
    """Return the point that a request names; ``run`` is the rest of a ``Point``: device, max_elements.

    Raises ``Unprocessable``, one entry for each thing that is wrong, each with its place.
    """
    if mode not in op.modes:
        message = f"op {op.name} has no kernel for this mode"
        raise wrong(("mode",), message, expected=f"one of {', '.join(op.modes)}", got=mode)
    bound_attrs = bind_attrs(op, attrs)
    bound_dtype = bind_dtype(op, dtype)
    _refuse_overflowing_numbers(bound_attrs, bound_dtype)
    arrays = decode_named(inputs, {slot.name: op.dtype_of(slot, bound_dtype) for slot in op.inputs}, decode, "inputs")
    if missing := [slot.name for slot in op.inputs if slot.name not in arrays]:
        expected = f"all of {', '.join(slot.name for slot in op.inputs)}"
        raise wrong(("inputs",), f"input {missing[0]} is missing", expected=expected, got=_names(arrays))
    dims = bind_dims(op, arrays, bound_attrs)
    ordered = {slot.name: arrays[slot.name] for slot in op.inputs}
    _validate(op, ordered, bound_attrs)
    point = Point(op, bound_attrs, bound_dtype, ordered, dims, mode, **run)
    point.admit_work()
    _admit_outputs(point)
    return point


def bind_attrs(op: Op, attrs: Mapping[str, Any]) -> Attrs:
    """Return the op's attributes, validated; unknown names are answered with near ones."""
    try:
        return op.attrs.model_validate(attrs)
    except ValidationError as error:
        raise unprocessable(entries(error.errors(include_url=False), op.attrs.model_fields, ("attrs",))) from None


def bind_dtype(op: Op, dtype: str | None) -> str:
    """Return the dtype of the op's type variable, its first one unless told."""
    if dtype is None:
        return op.dtypes[0]
    if dtype not in op.dtypes:
        expected = f"one of {', '.join(op.dtypes)}"
        raise wrong(("dtype",), f"op {op.name} does not take this dtype", expected=expected, got=dtype)
    return dtype


def decode_named(values: Mapping[str, Any], dtypes: Mapping[str, str], decode: Decode, field: str) -> dict[str, Array]:
    """Return the arrays of a field that maps names to tensors.

    Raises ``Unprocessable`` for names that ``dtypes`` does not have, and for tensors that do not decode.
    """
    faults, arrays = Faults(), dict[str, Array]()
    for name, value in values.items():
        if name not in dtypes:
            faults.add((field, name), "there is no such name here", expected=near(name, dtypes), got=name)
            continue
        try:
            arrays[name] = decode(value, dtypes[name], (field, name))
        except Unprocessable as error:
            faults.entries.extend(error.entries)
    faults.check()
    return arrays


def bind_dims(op: Op, arrays: Mapping[str, Array], attrs: Attrs) -> Dims:
    """Match every input's shape with its symbols, the same symbol everywhere the same; int attributes are symbols too.

    Raises ``Unprocessable`` with the input at fault, the shape expected and the one that came.
    """
    faults = Faults()
    dims: dict[str, int | tuple[int, ...]] = {
        name: value for name, value in attrs.static().items() if isinstance(value, int)
    }
    for slot in op.inputs:
        trial = dict(dims)
        shape = arrays[slot.name].shape
        if _matches(slot.shape, shape, trial):
            dims = trial
        else:
            message = f"shape {list(shape)} does not fit {shape_text(slot.shape)}"
            faults.add(("inputs", slot.name), message, expected=_expectation(slot.shape, dims), got=str(list(shape)))
    faults.check()
    return dims


def resolved_shape(pattern: Sequence[str | int], dims: Dims) -> tuple[int, ...] | None:
    """Return the shape that a symbolic one stands for, ``None`` where a symbol is not bound."""
    shape: list[int] = []
    for symbol in pattern:
        size = symbol if isinstance(symbol, int) else dims.get(symbol)
        if size is None:
            return None
        shape.extend(size if isinstance(size, tuple) else (size,))
    return tuple(shape)


def shape_text(pattern: Sequence[str | int]) -> str:
    """Return a symbolic shape as people write it: ``[N, C]``, ``[..., M, M]``."""
    return f"[{', '.join(map(str, pattern))}]"


def bind_names(names: Sequence[str] | None, slots: Sequence[Input | Output], field: str) -> tuple[str, ...]:
    """Return the names of inputs or outputs that a request selects, all of them unless told."""
    known = [slot.name for slot in slots]
    if names is None:
        return tuple(known)
    faults, seen = Faults(), set[str]()
    for i, name in enumerate(names):
        if name not in known:
            faults.add((field, i), "there is no such name", expected=near(name, known), got=name)
        elif name in seen:
            faults.add((field, i), "this name stands here twice", expected="each name once", got=name)
        seen.add(name)
    if not names:
        faults.add((field,), "nothing is selected", expected=f"some of {', '.join(known)}", got="[]")
    faults.check()
    # In the op's order, so that the order in a request makes no trace of its own.
    return tuple(name for name in known if name in names)


def bind_directions(
    point: Point, values: Mapping[str, Any] | None, slots: Sequence[Input | Output], decode: Decode, field: str
) -> dict[str, Array] | None:
    """Return the cotangents, tangents or vectors of a request, which must belong to differentiable slots, in order."""
    if values is None:
        return None
    arrays = decode_named(values, {s.name: point.op.dtype_of(s, point.dtype) for s in slots}, decode, field)
    live = point.differentiable(slots)
    for name in arrays:
        if name not in live:
            expected = f"some of {', '.join(live)}" if live else f"none: nothing is differentiable in {point.dtype}"
            raise wrong((field, name), "this is not differentiable", expected=expected, got=name)
    if not arrays:
        raise wrong((field,), "there is none", expected=f"at least one of {', '.join(live)}", got="{}")
    return {slot.name: arrays[slot.name] for slot in slots if slot.name in arrays}


def _matches(pattern: Sequence[str | int], shape: tuple[int, ...], dims: dict[str, int | tuple[int, ...]]) -> bool:
    """Match a shape with its symbols, binding those that are new in ``dims``."""
    if "..." in pattern:
        at, free = pattern.index("..."), len(shape) - len(pattern) + 1
        if free < 0:
            return False
        rest = (*shape[:at], *shape[at + free :])
        middle = shape[at : at + free]
        return dims.setdefault("...", middle) == middle and _matches((*pattern[:at], *pattern[at + 1 :]), rest, dims)
    if len(pattern) != len(shape):
        return False
    return all(
        size == symbol if isinstance(symbol, int) else dims.setdefault(symbol, size) == size
        for symbol, size in zip(pattern, shape, strict=True)
    )


def _expectation(pattern: Sequence[str | int], dims: Dims) -> str:
    shape = resolved_shape(pattern, dims)
    if shape is not None:
        return f"{list(shape)}, that is {shape_text(pattern)}"
    known = ", ".join(f"{symbol} = {dims[str(symbol)]}" for symbol in pattern if str(symbol) in dims)
    return shape_text(pattern) + (f" with {known}" if known else "")


def _refuse_overflowing_numbers(attrs: Attrs, dtype: str) -> None:
    for name, value in attrs.numbers().items():
        if not math.isfinite(float(number(value, dtype))):
            raise wrong(("attrs", name), f"this overflows {dtype}", expected=f"a {dtype} number", got=str(value))


def number(value: float, dtype: str) -> Array:
    """Return a number attribute as a scalar of the op's type variable, infinite where it overflows."""
    row = DTYPES[dtype]
    if not row.low < value < row.high:
        return np.asarray(math.copysign(math.inf, value)).astype(row.numpy)
    return narrow(np.asarray(value, np.float64), row)


def _admit_outputs(point: Point) -> None:
    """Refuse outputs over the element limit, unless they are no larger than the inputs are."""
    shapes = [point.output_shape(slot) for slot in point.op.outputs]
    elements = sum(math.prod(shape) for shape in shapes if shape is not None)
    if elements > sum(x.size for x in point.inputs.values()):
        point.admit(elements, "outputs")


@contextmanager
def authored(op: Op, what: str) -> Generator[None]:
    """Tell what an author's function raises as the op's fault; ``InvalidInput`` is its word, and passes."""
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        log.warning("op %s: its %s failed", op.name, what, exc_info=True)
        kind = type(error).__name__
        message = f"op {op.name}: its {what} raised {kind}"
        raise OpFailed(message, Entry((op.name, what), message, expected="no exception", got=kind)) from error


def _validate(op: Op, inputs: Mapping[str, Array], attrs: Attrs) -> None:
    if op.validate is None:
        return
    try:
        with authored(op, "validate"):
            op.validate(inputs, attrs)
    except InvalidInput as error:
        field = "attrs" if error.name in type(attrs).model_fields else "inputs"
        raise wrong((field, error.name, *error.index), error.message, expected=error.expected, got=error.got) from None


def _names(arrays: Mapping[str, Array]) -> str:
    return ", ".join(arrays) or "none"
