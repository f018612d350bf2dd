"""Templates: everything about a request and its response that does not depend on the request's numbers."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pybase64
from numpy.typing import NDArray

from app.fast_path.shared_calls import SharedCall
from app.requests.brief import NotBrief, is_brief, times
from app.runtime.modes import Key
from app.telemetry.counters import Counters
from app.tensors.casting import Loss, cast
from app.tensors.dtypes import DType
from app.tensors.json import Shape
from app.tensors.layouts import Layout, Placeholder
from app.tensors.skeletons import FlatNumbers
from ops import Array, Attrs

Columns: TypeAlias = list[FlatNumbers | Array]
"""The leaves of a request, flat; those of a dtype that is not a float are arrays of it."""
# The most bytes of a body, and of the body of a response, besides the numbers.
MAX_TEXT = 1 << 12
# The bytes of a template without its texts and constants.
BARE = 2000


@dataclass(frozen=True)
class ResponseTemplate:
    """A response without its numbers: its layout, and the key of the result in each slot.

    ``head`` has the parts around the date, the length of the body, and the request id, in this order. With
    ``is_for_finite``, it is the response to finite results only.
    """

    head: tuple[bytes, bytes, bytes, bytes]
    layout: Layout
    keys: tuple[Key, ...]
    is_for_finite: bool

    def bodies(self, rows: Sequence[NDArray[Any]]) -> list[bytes | None]:
        """Return the bodies for several requests, whose results with each key are the rows of an array.

        ``None`` stands for a response of another layout.
        """
        contents = list(map(Placeholder.contents, self.layout.placeholders, rows))
        bodies: list[bytes | None] = list(map(self.layout.fill, zip(*contents, strict=True)))
        if self.is_for_finite:
            is_finite = np.all([np.isfinite(part).all(axis=1) for part in rows], axis=0)
            bodies = [body if finite else None for body, finite in zip(bodies, is_finite, strict=True)]
        return bodies


class Range(NamedTuple):
    """The bytes of a tensor in a body, or its base64 text."""

    start: int
    stop: int
    is_base64: bool


@dataclass(frozen=True, eq=False)
class RunReader:
    """Reads bodies in JSON, whose numbers are in runs.

    ``skeleton`` is the body without them, and ``shapes`` are those of the runs. A leaf is a part of all numbers of the
    body, or a tensor that the skeleton has; ``dtypes`` are those of the leaves. ``constants`` are the texts of the runs
    that are not tensors, such as shapes, by their positions among the runs.
    """

    skeleton: bytes
    shapes: tuple[Shape, ...]
    leaves: tuple[slice | Array, ...]
    dtypes: tuple[DType, ...]
    constants: tuple[tuple[int, bytes], ...] = ()

    @property
    def weight(self) -> int:
        """The bytes of memory that the reader takes, about."""
        return len(self.skeleton) + _bytes_of(self.leaves)

    def matches(self, texts: Sequence[bytes | bytearray]) -> bool:
        """Return whether the texts of the runs of a body are those of the template where they are not tensors."""
        return all(texts[index] == text for index, text in self.constants)

    def columns(self, numbers: FlatNumbers) -> Columns | None:
        """Return the leaves for the numbers of a body; ``None`` if one may not fit the dtype of its leaf."""
        if self._narrowest is not None:
            # Python's min and max would take an array apart, number by number.
            is_array = isinstance(numbers, np.ndarray)
            least = np.minimum.reduce(numbers) if is_array else min(numbers)
            greatest = np.maximum.reduce(numbers) if is_array else max(numbers)
            if not (self._narrowest.low < least and greatest < self._narrowest.high):
                return None
        leaves: Columns = [numbers[leaf] if isinstance(leaf, slice) else leaf for leaf in self.leaves]
        for index, dtype in self._not_floats:
            if (integers := _integers(leaves[index], dtype)) is None:
                return None
            leaves[index] = integers
        return leaves

    @cached_property
    def _not_floats(self) -> tuple[tuple[int, DType], ...]:
        """The leaves whose numbers are integers or bools, and their dtypes."""
        pairs = enumerate(zip(self.leaves, self.dtypes, strict=True))
        return tuple((i, dtype) for i, (leaf, dtype) in pairs if isinstance(leaf, slice) and not dtype.is_float)

    @cached_property
    def _narrowest(self) -> DType | None:
        """The float dtype whose range bounds all numbers of a body; every number is in that of float64."""
        narrow = [dtype for dtype in self.dtypes if dtype.is_float and dtype.numpy != np.float64]
        return narrow[0] if narrow else None


@dataclass(frozen=True, eq=False)
class RangeReader:
    """Reads bodies whose tensors are ranges of bytes, with ``around`` them the bytes that do not change.

    A leaf is the number of a range, or a tensor that the other bytes have. ``dtypes`` are those of the ranges, and
    ``sizes`` their numbers.
    """

    leaves: tuple[int | Array, ...]
    ranges: tuple[Range, ...]
    around: tuple[bytes, ...]
    dtypes: tuple[DType, ...]
    sizes: tuple[int, ...]

    @property
    def weight(self) -> int:
        """The bytes of memory that the reader takes, about."""
        return sum(map(len, self.around)) + _bytes_of(self.leaves)

    def matches(self, body: bytes) -> bool:
        """Return whether a body of the same length differs from the template in its ranges only."""
        starts = (0, *(place.stop for place in self.ranges))
        return all(map(body.startswith, self.around, starts))

    def columns(self, body: bytes) -> Columns | None:
        """Return the leaves in a body; ``None`` if the text of one is not base64 of such tensors."""
        tensors: list[Array] = []
        for (start, stop, is_base64), row, size in zip(self.ranges, self.dtypes, self.sizes, strict=True):
            dtype = row.numpy
            if not is_base64:
                tensor = np.frombuffer(body, dtype, size, start)
            else:
                try:
                    tensor = np.frombuffer(pybase64.b64decode(body[start:stop], validate=True), dtype)
                except ValueError:
                    return None
            if tensor.size != size or (row.is_bool and tensor.view(np.uint8).max(initial=0) > 1):
                return None
            tensors.append(tensor)
        return [tensors[leaf] if isinstance(leaf, int) else leaf for leaf in self.leaves]


@dataclass(eq=False)
class Values:
    """The check of the values of a request by its op's author: ``validate``, for the inputs with these names.

    ``is_brief``: the last check was, so that the next one may run on the event loop.
    """

    validate: Callable[[dict[str, Array], Attrs], None]
    names: tuple[str, ...]
    attrs: Attrs
    is_brief: bool = True

    def check(self, columns: Columns, shapes: Sequence[Shape]) -> None:
        """Raise what the author raises for these inputs, the first leaves, and ``NotBrief``."""
        if not self.is_brief:
            raise NotBrief("")
        inputs = zip(self.names, columns, shapes, strict=False)
        began = times()
        try:
            self.validate({name: np.asarray(x).reshape(shape) for name, x, shape in inputs}, self.attrs)
        finally:
            self.is_brief = is_brief(began)


@dataclass(frozen=True, eq=False)
class Template:
    """A request without its numbers: what reads its body, what computes its response, the response, who counts it.

    The request has ``size`` units of the packing of its call, and its tensors have ``shapes``. ``parse_counters`` count
    the time of reading. ``target`` is the path, for the log, and ``route`` its template. ``values`` checks the values,
    if the op does that.
    """

    reader: RunReader | RangeReader
    call: SharedCall
    size: int
    shapes: tuple[Shape, ...]
    response: ResponseTemplate
    counters: Counters
    parse_counters: Counters
    target: str
    route: str
    values: Values | None = None

    @property
    def weight(self) -> int:
        """The bytes of memory that the template takes, about."""
        return BARE + self.reader.weight + sum(map(len, (*self.response.head, *self.response.layout.constants)))

    @property
    def has_op(self) -> bool:
        """Whether the op and its parameters are there: what was posted may be gone, and otherwise is used now."""
        return self.call.is_kept is None or self.call.is_kept()

    @property
    def is_gone(self) -> bool:
        """Whether the op is a posted graph that is gone, or the parameters are."""
        return self.call.is_gone is not None and self.call.is_gone()

    @cached_property
    def is_checked(self) -> bool:
        """Whether the values of a request are checked, or those of an input that all rows use compared."""
        return self.values is not None or bool(self.call.shared)

    def checked(self, columns: Columns) -> Columns:
        """Return the leaves as arrays, after a check of their values; raises what the author of the op raises."""
        # Once, for the check, the key of what requests share, and the call.
        arrays: Columns = [
            np.asarray(x, np.float64 if isinstance(x, list) else None).astype(dtype, copy=False)
            for x, dtype in zip(columns, self.call.dtypes, strict=True)
        ]
        if self.values is not None:
            self.values.check(arrays, self.shapes)
        return arrays

    def shared(self, columns: Columns) -> Hashable:
        """Return what must be equal for all requests of a call: the shapes and bytes of inputs that all rows use."""
        return tuple([(self.shapes[index], np.asarray(columns[index]).tobytes()) for index in self.call.shared])


def _integers(numbers: FlatNumbers | Array, dtype: DType) -> Array | None:
    """Return numbers as integers of a dtype, ``None`` if they are others, or may have been rounded."""
    flat: list[Any] = numbers if isinstance(numbers, list) else numbers.tolist()
    if dtype.is_bool:
        return None
    try:
        return cast(flat, set(map(type, flat)), dtype)
    except Loss:
        return None


def _bytes_of(leaves: Iterable[object]) -> int:
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, np.ndarray))
