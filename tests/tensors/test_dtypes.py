"""The dtype table against NumPy, ml_dtypes and exact arithmetic."""

import math

import ml_dtypes
import numpy as np
import pytest

from app.tensors.dtypes import DTYPES, of

NAMES = ["float16", "bfloat16", "float32", "float64"]
NAMES += ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


def test_the_table_has_the_dtypes_of_the_contract():
    assert sorted(DTYPES) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_row_agrees_with_its_dtype(name):
    row = DTYPES[name]
    assert row.name == name == row.numpy.name
    assert row.itemsize == row.numpy.itemsize == row.wire.itemsize
    assert row.is_float == ("float" in name)
    assert row.is_bool == (name == "bool")
    assert row.numpy.isnative


@pytest.mark.parametrize("name", NAMES)
def test_wire_dtypes_are_little_endian(name):
    one = np.array([1], DTYPES[name].numpy).astype(DTYPES[name].wire).tobytes()
    parts = {"float16": b"\x00\x3c", "bfloat16": b"\x80\x3f", "float32": b"\x00\x00\x80\x3f"}
    last = b"\x00" * 6 + b"\xf0\x3f" if name == "float64" else b"\x01".ljust(DTYPES[name].itemsize, b"\x00")
    assert one == parts.get(name, last)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_floats_overflow_half_a_unit_past_the_largest(name):
    info = ml_dtypes.finfo(DTYPES[name].numpy)
    largest, before = float(info.max), float(np.nextafter(info.max, info.dtype.type(0)))
    assert DTYPES[name].high == largest + (largest - before) / 2 == -DTYPES[name].low


def test_float64_overflows_at_infinity():
    assert DTYPES["float64"].high == math.inf


@pytest.mark.parametrize("name", [name for name in NAMES if "int" in name])
def test_integer_limits_follow_from_the_bits(name):
    row, bits = DTYPES[name], int(name.lstrip("uint"))
    low = 0 if name.startswith("u") else -(2 ** (bits - 1))
    assert (row.low, row.high) == (low, low + 2**bits - 1)
    assert type(row.low) is type(row.high) is int


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_found_in_either_byte_order(name):
    assert of(DTYPES[name].numpy) is DTYPES[name]
    assert of(DTYPES[name].numpy.newbyteorder()) is DTYPES[name]


@pytest.mark.parametrize("dtype", [np.clongdouble, object, "U3", "M8[s]", ml_dtypes.float8_e4m3fn])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match=r"expected a tensor of float16, .*, got "):
        of(np.dtype(dtype))
