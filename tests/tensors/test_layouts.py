"""A layout written whole, and filled place by place, gives the same bytes, which read back as the arrays."""

import json
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pybase64
import pytest

from app.tensors import safetensors
from app.tensors.dtypes import DTYPES
from app.tensors.json import decode
from app.tensors.layouts import Form, Layout, Placeholder, lay_out

FORMS: tuple[Form, ...] = ("flat", "nested", "base64", "bytes")
TEXTS: tuple[Form, ...] = ("flat", "nested")
SHAPES = ((), (1,), (3,), (2, 3), (1, 1, 2), (70,), (5, 1, 40))
FLOATS = [name for name, row in DTYPES.items() if row.is_float]
# The float32 that orjson writes as 7.038531e-26, which reads back, through float64, as its neighbour.
AMBIGUOUS = float(np.uint32(0x15AE43FD).view(np.float32))
# Of these, orjson writes NaN and the infinities as null.
EDGES = (
    0.0,
    -0.0,
    AMBIGUOUS,
    -AMBIGUOUS,
    7.038531e-26,
    np.nan,
    np.inf,
    -np.inf,
    0.1,
    1e-45,
    3e38,
    -65504.0,
    17.038531e-26,
)
ROWS = 5


def rows(dtype: str, shape: tuple[int, ...], count: int = ROWS) -> np.ndarray[Any, Any]:
    """Return flat arrays of this dtype and shape: at first plain ones, then ones with every edge."""
    size, rng = int(np.prod(shape)), np.random.default_rng(1)
    if dtype == "bool":
        return rng.integers(0, 2, (count, size)).astype(np.bool_)
    values = rng.uniform(-3, 3, (count, size)) if dtype in FLOATS else rng.integers(0, 99, (count, size))
    if dtype in FLOATS:
        values[1:] = np.resize(EDGES, (count - 1, size)) if size > 1 else np.resize(EDGES[2:], (count - 1, 1))
        values[-1] = np.roll(values[-1], 5)
    with np.errstate(over="ignore"):
        return values.astype(DTYPES[dtype].numpy)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_contents_of_rows_are_those_of_each(dtype: str, form: Form):
    for shape, is_wide, count in product(SHAPES, (False, True), (1, ROWS)):
        arrays = rows(dtype, shape, count)
        place = Placeholder(arrays[0].reshape(shape), form, is_wide).without_numbers()
        each = [bytes(Placeholder(row.reshape(shape), form, is_wide).content()) for row in arrays]
        assert list(place.contents(arrays)) == each, (shape, is_wide, count)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("others", [1, 70])
def test_the_ambiguous_number_among_plain_ones(others: int, sign: int):
    number = np.float32(sign * AMBIGUOUS)
    arrays = np.array([[0.5] * others + [1.5], [number] + [0.5] * others, [number] * (others + 1)], np.float32)
    for row, content in zip(arrays, Placeholder(arrays[0], "flat").without_numbers().contents(arrays), strict=True):
        assert content == bytes(Placeholder(row, "flat").content())
        assert np.array(json.loads(b"[%b]" % content)).astype(np.float32).tobytes() == row.tobytes()


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_text_reads_back_exactly(dtype: str, form: Form, is_wide: bool):
    for row in rows(dtype, (4, 3)):
        text = bytes(Placeholder(row.reshape(4, 3), form, is_wide).content())
        read = decode(json.loads(text if form == "nested" else b"[%b]" % text), dtype, ())
        assert np.array_equal(read.reshape(-1).view(np.uint8), canonical(row).view(np.uint8))


def canonical(row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a row with the NaN that a word stands for."""
    if row.dtype.name not in FLOATS:
        return row
    return np.where(np.isnan(row), np.array(np.nan, row.dtype), row)


def test_a_wide_placeholder_has_the_digits_of_a_float64():
    array = np.array([0.1, 2.5], np.float32)
    assert (bytes(Placeholder(array, "flat").content()), bytes(Placeholder(array, "flat", is_wide=True).content())) == (
        b"0.1,2.5",
        b"0.10000000149011612,2.5",
    )


def test_binary_forms_are_little_endian():
    array = np.array([1.5, -2.5], ">f8")
    assert bytes(Placeholder(array, "bytes").content()) == array.astype("<f8").tobytes()
    assert pybase64.b64decode(Placeholder(array, "base64").content()) == array.astype("<f8").tobytes()
    half = np.array([1.5], ml_dtypes.bfloat16)
    assert bytes(Placeholder(half, "bytes").content()) == half.tobytes()


def test_a_placeholder_without_numbers_takes_no_memory():
    array = np.arange(6.0).reshape(2, 3)
    place = Placeholder(array, "nested", is_wide=True).without_numbers()
    assert (place.array.shape, place.array.dtype, place.form, place.is_wide) == ((2, 3), array.dtype, "nested", True)
    assert not any(place.array.strides)


def filled(layout: Layout) -> bytes:
    return layout.fill([place.content() for place in layout.placeholders])


def test_a_filled_layout_is_its_pieces():
    array = np.array([[1.5, np.nan]])
    flat, nested, base64 = (Placeholder(array, form) for form in ("flat", "nested", "base64"))
    document = {"a": flat, "b": [nested, 1], "c": {"d": base64}}
    layout = lay_out(document)
    assert b"".join(layout.pieces()) == filled(layout)
    text = pybase64.b64encode(array.tobytes()).decode()
    assert json.loads(filled(layout)) == {"a": [1.5, "NaN"], "b": [[[1.5, "NaN"]], 1], "c": {"d": text}}
    assert filled(layout).endswith(b"}\n")


def test_a_filled_layout_of_bytes_is_its_pieces():
    arrays = {"outputs/x": np.arange(3.0), "outputs/n": np.arange(5, dtype=np.int8), "outputs/none": np.zeros((0, 2))}
    layout = safetensors.lay_out(arrays, {"absent": {"z": "disconnected"}})
    assert b"".join(layout.pieces()) == filled(layout)
    assert len(layout.placeholders) == len(layout.constants) - 1 == len(arrays)


@pytest.mark.parametrize("text", ["\0", "[\0]", '"\0"', "\\u0000", "a\0b\0"])
def test_strings_forge_no_placeholder(text: str):
    """JSON text has no zero byte: a string or a key that has one is escaped."""
    array = np.array([0.5])
    layout = lay_out({text: text, "x": Placeholder(array, "flat"), "list": [text]})
    assert len(layout.constants) == 2
    assert json.loads(filled(layout)) == {text: text, "x": [0.5], "list": [text]}


def test_a_value_that_json_does_not_have_is_refused():
    with pytest.raises(TypeError):
        lay_out({"x": object()})


def test_contents_of_another_number_are_refused():
    layout = lay_out({"x": Placeholder(np.array([0.5]), "flat")})
    with pytest.raises(ValueError, match="argument 2"):
        layout.fill([])
