"""The layout of a response: constant bytes, and placeholders for arrays.

In JSON, a number is the shortest text that reads back exactly. JSON has no NaN and no infinity: these are the strings
"NaN", "Infinity" and "-Infinity".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from app.tensors import dtypes
from app.tensors.casting import NONFINITE
from app.tensors.strict_json import Body

Encoding: TypeAlias = Literal["nested", "flat", "base64"]
Form: TypeAlias = Literal[Encoding, "bytes"]

# Marks a placeholder in JSON text, which has no such character.
_MARK = b"\0"
_MARKED = {"flat": orjson.Fragment(b"[\0]"), "nested": orjson.Fragment(b"\0"), "base64": orjson.Fragment(b'"\0"')}
_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_OPTIONS = _NUMPY | orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATACLASS

# The nearest float64 to the shortest text of this float32, 7.038531e-26, is a tie between two float32, which rounds to
# the other one, so a reader that goes through float64 gets a neighbour. It needs more digits. It is the only such
# number: all 2^31 were tried.
_AMBIGUOUS = float(np.uint32(0x15AE43FD).view(np.float32))
_AMBIGUOUS_TEXT, _NULL = b"7.038531e-26", b"null"
_SHORT = 64
# The most numbers that are written in one call, which takes half a millisecond: no other thread can run meanwhile.
_PART = 1 << 14


@dataclass(frozen=True, eq=False, slots=True)
class Placeholder:
    """The place of an array in a response.

    ``form`` is how it is written: ``flat`` as its numbers, separated by commas, in row-major order; ``nested`` as
    nested lists; ``base64`` as the base64 of its bytes; ``bytes`` as its bytes, little-endian. With ``is_wide``, a
    float is written as a float64, which has more digits.
    """

    array: NDArray[Any]
    form: Form
    is_wide: bool = False

    def without_numbers(self) -> "Placeholder":
        """Return the placeholder with an array of the same shape and dtype that takes no memory."""
        array = np.broadcast_to(np.zeros((), self.array.dtype), self.array.shape)
        return Placeholder(array, self.form, self.is_wide)

    def content(self) -> Body:
        """Return the bytes of the array; in the form ``bytes`` a view if possible."""
        array, row = self.array, dtypes.ROWS.get(self.array.dtype) or dtypes.of(self.array.dtype)
        if row.part and self.form in ("flat", "nested"):
            array = np.asarray(array, order="C")[..., None].view(row.text)
        if self.form in ("flat", "nested"):
            numbers = np.asarray(array, np.float64 if self.is_wide and row.text.kind == "f" else row.text, order="C")
            return text(numbers) if self.form == "nested" else text(numbers.reshape(-1))[1:-1]
        wire: NDArray[Any] = np.asarray(array, row.wire, order="C")
        raw = wire.reshape(-1).view(np.uint8).data
        return pybase64.b64encode(raw) if self.form == "base64" else raw

    def contents(self, rows: NDArray[Any]) -> Sequence[bytes]:
        """Return the bytes of several arrays of the same shape and dtype, each of which is a row, flat."""
        if self.form in ("flat", "nested"):
            dtype, shape = dtypes.ROWS[self.array.dtype], self.array.shape
            numbers = np.asarray(rows, np.float64 if self.is_wide and dtype.is_float else dtype.text, order="C")
            if self.form == "flat":
                return texts(numbers)
            if len(shape) == 1:
                return [b"[%b]" % part for part in texts(numbers)]
            return list(map(text, numbers.reshape(len(rows), *shape)))
        raw = [row.tobytes() for row in rows]
        return list(map(pybase64.b64encode, raw)) if self.form == "base64" else raw


class Layout(NamedTuple):
    """Constant bytes, and the placeholders between them: one fewer."""

    constants: tuple[bytes, ...]
    placeholders: tuple[Placeholder, ...]

    def keyed(self, results: Mapping[Any, NDArray[Any] | None]) -> "KeyedLayout | None":
        """Return the layout without its numbers, for other results; ``None`` unless its arrays are these results.

        It also is ``None`` for bools, whose bytes must be checked.
        """
        key_of = {id(array): key for key, array in results.items() if array is not None}
        keys, slots = list[Any](), list[Placeholder]()
        for slot in self.placeholders:
            key = key_of.get(id(slot.array), _key_of_pairs(slot.array, results))
            if key is None or slot.array.dtype == np.bool_:
                return None
            array = results[key]
            assert array is not None
            keys.append(key)
            slots.append(Placeholder(array, slot.form, slot.is_wide).without_numbers())
        missing = [key for key, array in results.items() if array is None]
        return KeyedLayout(Layout(self.constants, tuple(slots)), tuple(keys), missing)

    def pieces(self) -> list[Body]:
        """Return the response in pieces, with the arrays of the placeholders."""
        pieces: list[Body] = [self.constants[0]]
        for placeholder, constant in zip(self.placeholders, self.constants[1:], strict=True):
            pieces += (placeholder.content(), constant)
        return list(filter(len, pieces))

    def fill(self, contents: Sequence[Body]) -> bytes:
        """Return the response with these contents of the placeholders."""
        pieces: list[Body] = [self.constants[0]]
        for content, constant in zip(contents, self.constants[1:], strict=True):
            pieces += (content, constant)
        return b"".join(pieces)


def _key_of_pairs(array: NDArray[Any], results: Mapping[Any, NDArray[Any] | None]) -> Any:
    """Return the key of the pairs of real numbers that an array has as complex ones; both are written alike."""
    if array.dtype.kind != "c" or not array.size or not array.flags.c_contiguous:
        return None
    for key, pairs in results.items():
        if pairs is None or pairs.shape != (*array.shape, 2) or not pairs.flags.c_contiguous:
            continue
        if _address(pairs) == _address(array):
            return key
    return None


def _address(array: NDArray[Any]) -> int:
    return array.__array_interface__["data"][0]


class KeyedLayout(NamedTuple):
    """A layout without numbers, the key of the result in each placeholder, and the keys of ``missing`` results."""

    layout: Layout
    keys: tuple[Any, ...]
    missing: Sequence[Any]

    def with_results(self, results: Mapping[Any, NDArray[Any] | None]) -> Layout | None:
        """Return the layout with other results, ``None`` if others are missing, or one has another shape."""
        placeholders: list[Placeholder] = []
        for key in self.missing:
            if results[key] is not None:
                return None
        for slot, key in zip(self.layout.placeholders, self.keys, strict=True):
            array = results[key]
            if array is None or array.shape != slot.array.shape:
                return None
            placeholders.append(Placeholder(array, slot.form, slot.is_wide))
        return Layout(self.layout.constants, tuple(placeholders))


def encode(array: NDArray[Any], encoding: Encoding) -> dict[str, Any]:
    """Return the typed form of ``array``, of any shape and layout, for ``lay_out`` (``app.tensors.json``).

    Raises ``TypeError`` for a dtype that is not in the table.
    """
    row = dtypes.ROWS.get(array.dtype) or dtypes.of(array.dtype)
    key = "base64" if encoding == "base64" else "data"
    return {"dtype": row.name, "shape": list(array.shape), key: Placeholder(array, encoding)}


def lay_out(document: Any) -> Layout:
    """Return the layout of a document, which may have ``Placeholder`` objects, as strict JSON with a final line feed.

    Other numbers in it must be finite. Raises ``TypeError`` for a value that JSON cannot represent.
    """
    placeholders: list[Placeholder] = []

    def mark(value: object) -> orjson.Fragment:
        if not isinstance(value, Placeholder):
            raise TypeError(type(value).__name__)
        placeholders.append(value)
        return _MARKED[value.form]

    written = orjson.dumps(document, default=mark, option=_OPTIONS)
    return Layout(tuple(written.split(_MARK)), tuple(placeholders))


def text(array: NDArray[Any]) -> bytes:
    """Return an array of a dtype that orjson supports as a number or nested lists; a large one is written in parts."""
    if array.size <= _SHORT and array.ndim:
        written = orjson.dumps(array, option=_NUMPY)
        return written if _NULL not in written and _AMBIGUOUS_TEXT not in written else _with_strings(array)
    if array.size <= _PART:
        if array.dtype.kind == "f" and not _plain_mask(array).all():
            return _with_strings(array)
        return orjson.dumps(array if array.ndim else array[()], option=_NUMPY)  # no arrays of rank 0 in orjson
    row = array.size // len(array)
    if row > _PART:
        return b"[%b]" % b",".join(map(text, array))
    step = _PART // row
    return b"[%b]" % b",".join(text(array[start : start + step])[1:-1] for start in range(0, len(array), step))


def texts(rows: NDArray[Any]) -> Sequence[bytes]:
    """Return the numbers of each row, separated by commas, as ``text`` writes them."""
    if rows.shape[1] > _PART:
        return [text(row)[1:-1] for row in rows]
    if rows.shape[1] > _SHORT:
        # To search the text of long rows takes longer than to test their numbers.
        is_plain = np.all(_plain_mask(rows), axis=1) if rows.dtype.kind == "f" else np.ones(len(rows), np.bool_)
        return [
            (orjson.dumps(row, option=_NUMPY) if plain else _with_strings(row))[1:-1]
            for row, plain in zip(rows, is_plain, strict=True)
        ]
    together = orjson.dumps(rows, option=_NUMPY)
    parts = together[2:-2].split(b"],[")
    if _AMBIGUOUS_TEXT in together or _NULL in together:
        parts = [
            text(row)[1:-1] if _AMBIGUOUS_TEXT in part or _NULL in part else part
            for part, row in zip(parts, rows, strict=True)
        ]
    return parts


def _plain_mask(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of these floats orjson writes correctly."""
    plain = np.isfinite(array)
    return plain & (np.abs(array) != np.float32(_AMBIGUOUS)) if array.dtype == np.float32 else plain


def _with_strings(array: NDArray[Any]) -> bytes:
    """Return an array with numbers that orjson does not write correctly, with strings for NaN and the infinities.

    Other numbers go through orjson and back, so that a float32 keeps its short text.
    """
    plain = _plain_mask(array)
    short = orjson.dumps(np.where(plain, array, array.dtype.type(0)).reshape(-1), option=_NUMPY)
    items = np.array(orjson.loads(short), object).reshape(array.shape)
    for name, value in NONFINITE.items():
        items[np.isnan(array) if math.isnan(value) else array == value] = name
    ambiguous = np.isfinite(array) & ~plain
    items[ambiguous] = array[ambiguous].astype(np.float64)
    return orjson.dumps(items.tolist())
