"""The layout of a response: constant bytes, and placeholders for arrays."""

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

# Marks a placeholder in JSON text, which has no such character.
_MARK = b"\0"
_MARKED = {
    "flat": orjson.Fragment(b"[\0]"),
    "nested": orjson.Fragment(b"\0"),
    "base64": orjson.Fragment(b'"\0"'),
}
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATACLASS


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
        if self.form in ("flat", "nested"):
            numbers = np.asarray(array, np.float64 if self.is_wide and row.is_float else row.text, order="C")
            return text(numbers) if self.form == "nested" else text(numbers.reshape(-1))[1:-1]
        wire: NDArray[Any] = np.asarray(array, row.wire, order="C")
        raw = wire.reshape(-1).view(np.uint8).data
        return pybase64.b64encode(raw) if self.form == "base64" else raw

    def contents(self, rows: NDArray[Any]) -> Sequence[bytes]:
        """Return the bytes of several arrays of the same shape and dtype, each of which is a row, flat."""
        if self.form in ("flat", "nested"):
            dtype, shape = dtypes.ROWS[self.array.dtype], self.array.shape
            numbers = np.asarray(rows, np.float64 if self.is_wide and dtype.is_float else dtype.text, order="C")
            return texts(numbers) if self.form == "flat" else [text(row.reshape(shape)) for row in numbers]
        raw = [row.tobytes() for row in rows]
        return list(map(pybase64.b64encode, raw)) if self.form == "base64" else raw


class Layout(NamedTuple):
    """Constant bytes, and the placeholders between them: one fewer."""

    constants: tuple[bytes, ...]
    placeholders: tuple[Placeholder, ...]

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


def lay_out(document: Any) -> Layout:
    """Return the layout of a document, which may have ``Placeholder`` objects, as strict JSON with a final line feed.

    Other numbers in it must be finite. Raises ``TypeError`` for a value that JSON cannot represent.
    """
    placeholders = list[Placeholder]()

    def mark(value: object) -> orjson.Fragment:
        if not isinstance(value, Placeholder):
            raise TypeError(type(value).__name__)
        placeholders.append(value)
        return _MARKED[value.form]

    written = orjson.dumps(document, default=mark, option=_OPTIONS)
    return Layout(tuple(written.split(_MARK)), tuple(placeholders))
