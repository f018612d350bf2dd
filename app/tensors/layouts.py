"""The layout of a response: constant bytes, and slots for arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from app.tensors import dtypes
from app.tensors.json_text import text, texts
from app.tensors.strict_json import Body

Form: TypeAlias = Literal["flat", "nested", "base64", "bytes"]

# Marks a slot in JSON text, which has no such character.
_MARK = b"\0"
_MARKED = {
    "flat": orjson.Fragment(b"[\0]"),
    "nested": orjson.Fragment(b"\0"),
    "base64": orjson.Fragment(b'"\0"'),
}
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATACLASS


@dataclass(frozen=True, eq=False, slots=True)
class Slot:
    """The place of an array in a response.

    ``form`` is how it is written: ``flat`` as its numbers, separated by commas, in row-major order; ``nested`` as
    nested lists; ``base64`` as the base64 of its bytes; ``bytes`` as its bytes, little-endian. With ``is_wide``, a
    float is written as a float64, which has more digits.
    """

    array: NDArray[Any]
    form: Form
    is_wide: bool = False

    def without_numbers(self) -> "Slot":
        """Return the slot with an array of the same shape and dtype that takes no memory."""
        array = np.broadcast_to(np.zeros((), self.array.dtype), self.array.shape)
        return Slot(array, self.form, self.is_wide)

    def content(self) -> Body:
        """Return the bytes of the array; in the form ``bytes`` a view if possible."""
        array = self.array
        if self.form in ("flat", "nested"):
            numbers = self._numbers(array)
            return text(numbers) if self.form == "nested" else text(numbers.reshape(-1))[1:-1]
        wire: NDArray[Any] = np.asarray(array, dtypes.of(array.dtype).wire, order="C")
        raw = wire.reshape(-1).view(np.uint8).data
        return pybase64.b64encode(raw) if self.form == "base64" else raw

    def contents(self, rows: NDArray[Any]) -> Sequence[bytes]:
        """Return the bytes of several arrays of the same shape and dtype, each of which is a row, flat."""
        match self.form:
            case "flat":
                return texts(self._numbers(rows))
            case "nested":
                shape = self.array.shape
                return [text(row.reshape(shape)) for row in self._numbers(rows)]
            case "base64":
                return [pybase64.b64encode(row.tobytes()) for row in rows]
            case "bytes":
                return [row.tobytes() for row in rows]

    def _numbers(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return numbers of a dtype that orjson supports, in row-major order."""
        row = dtypes.ROWS.get(array.dtype) or dtypes.of(array.dtype)
        if self.is_wide and row.is_float:
            return np.asarray(array, np.float64, order="C")
        # orjson does not support bfloat16; it and float16 are exact in float32.
        is_narrow = row.is_float and row.name != "float64"
        return np.asarray(array, np.float32 if is_narrow else row.numpy, order="C")


class Layout(NamedTuple):
    """Constant bytes, and the slots between them: one fewer."""

    constants: tuple[bytes, ...]
    slots: tuple[Slot, ...]

    def pieces(self) -> list[Body]:
        """Return the response in pieces, with the arrays of the slots."""
        pieces: list[Body] = [self.constants[0]]
        for slot, constant in zip(self.slots, self.constants[1:], strict=True):
            pieces += (slot.content(), constant)
        return list(filter(len, pieces))

    def fill(self, contents: Sequence[Body]) -> bytes:
        """Return the response with these contents of the slots."""
        pieces: list[Body] = [self.constants[0]]
        for content, constant in zip(contents, self.constants[1:], strict=True):
            pieces += (content, constant)
        return b"".join(pieces)


def lay_out(document: Any) -> Layout:
    """Return the layout of a document as strict JSON with a final line feed, with its ``Slot`` objects as slots.

    Other numbers in it must be finite. Raises ``TypeError`` for a value that JSON cannot represent.
    """
    slots = list[Slot]()

    def mark(value: object) -> orjson.Fragment:
        if not isinstance(value, Slot):
            raise TypeError(type(value).__name__)
        slots.append(value)
        return _MARKED[value.form]

    written = orjson.dumps(document, default=mark, option=_OPTIONS)
    return Layout(tuple(written.split(_MARK)), tuple(slots))
