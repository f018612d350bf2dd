"""Safetensors: bit-for-bit round trips, and a reason for every refused body."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from app.errors import Malformed, PullbackError, Unprocessable
from app.tensors.casting import ALIGNMENT
from app.tensors.dtypes import DTYPES
from app.tensors.json import decode
from app.tensors.safetensors import MAX_HEADER, lay_out, parse

PROPERTY = settings(max_examples=60, deadline=None, database=None)
LOC = ("inputs", "x")
SPELLINGS = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "BOOL": "bool",
}
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def body_of(header: Any, data: bytes = b"") -> bytes:
    """Return a body in the published format; the header can be any text or any JSON value."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def metadata(**fields: Any) -> dict[str, Any]:
    return {"__metadata__": {"pullback": json.dumps(fields)}}


def read_published(body: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read a body according to the published format, independently of our reader."""
    length = sum(byte << (8 * i) for i, byte in enumerate(body[:8]))
    header, data = json.loads(body[8 : 8 + length].decode("utf-8")), body[8 + length :]
    assert body[8:9] == b"{"
    assert not body[8 : 8 + length].rstrip(b" ").endswith(b"\n")
    meta = header.pop("__metadata__", {})
    tensors, reached = {}, 0
    for name, entry in header.items():
        assert set(entry) == {"dtype", "shape", "data_offsets"}
        begin, end = entry["data_offsets"]
        assert begin == reached, "no holes, and in order"
        reached = end
        dtype = DTYPES[SPELLINGS[entry["dtype"]]].wire
        assert (8 + length + begin) % dtype.itemsize == 0
        flat = np.array(
            [np.frombuffer(data[at : at + dtype.itemsize], dtype)[0] for at in range(begin, end, dtype.itemsize)]
        )
        tensors[name] = flat.astype(dtype).reshape(entry["shape"])
    assert reached == len(data)
    assert (8 + length) % 64 == 0
    return tensors, meta


def arrays(name: str) -> Any:
    """Draw arrays of every shape from random bits, which include NaN, infinities, subnormals and -0.0."""
    row = DTYPES[name]
    if row.is_bool:
        return hnp.arrays(np.bool_, SHAPES)
    bits = st.integers(0, 2 ** (8 * row.itemsize) - 1)
    return hnp.arrays(f"u{row.itemsize}", SHAPES, elements=bits).map(lambda array: array.view(row.numpy))


ANY_ARRAYS = st.sampled_from(sorted(DTYPES)).flatmap(arrays)
DOCUMENTS = st.dictionaries(
    st.sampled_from(["inputs", "cotangents", "tangents", "vectors"]),
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True), ANY_ARRAYS, min_size=1, max_size=3),
)


def assert_same_bits(found: np.ndarray, array: np.ndarray) -> None:
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert found.flags.c_contiguous
    assert found.dtype.isnative
    assert found.tobytes() == array.tobytes()


def refusal(body: bytes) -> str:
    with pytest.raises(Malformed) as caught:
        parse(body)
    assert caught.value.entries == ()
    assert caught.value.document("/")["detail"] == caught.value.detail, "the detail must not be shortened"
    return caught.value.detail


@PROPERTY
@given(DOCUMENTS, st.sampled_from([bytes, bytearray, memoryview]), st.booleans())
def test_a_round_trip_keeps_every_bit(document, kind, with_fields):
    named = {f"{field}/{name}": array for field, tensors in document.items() for name, array in tensors.items()}
    fields = {"order": 2, "wrt": ["x: é"]} if with_fields else {}
    found = parse(kind(b"".join(lay_out(named, fields).pieces())))
    assert {name: found.pop(name) for name in fields} == fields
    assert {field: set(tensors) for field, tensors in found.items()} == {f: set(t) for f, t in document.items()}
    for field, tensors in document.items():
        for name, array in tensors.items():
            assert_same_bits(found[field][name], array)
            assert_same_bits(decode(found[field][name], array.dtype.name, LOC), array)


@PROPERTY
@given(st.dictionaries(st.text(max_size=8), ANY_ARRAYS, max_size=5), st.booleans())
def test_bodies_have_the_published_format(tensors, with_fields):
    fields = {"absent": {"x": "disconnected"}} if with_fields else {}
    found, meta = read_published(b"".join(lay_out(tensors, fields).pieces()))
    assert meta == ({"pullback": json.dumps(fields, separators=(",", ":"))} if fields else {})
    assert set(found) == set(tensors)
    for name, array in tensors.items():
        assert_same_bits(found[name], array)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_short_float_keeps_its_bits(name):
    array = np.arange(2**16, dtype=np.uint16).view(DTYPES[name].numpy)
    assert_same_bits(parse(b"".join(lay_out({"inputs/x": array}, {}).pieces()))["inputs"]["x"], array)


def test_a_body_has_the_expected_bytes():
    header = b'{"inputs/x":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}}'
    body = (120).to_bytes(8, "little") + header + b" " * (120 - len(header)) + b"\x80\x3f\x00\xc0"
    array = np.array([[1], [-2]], DTYPES["bfloat16"].numpy)
    assert b"".join(lay_out({"inputs/x": array}, {}).pieces()) == body
    assert_same_bits(parse(body)["inputs"]["x"], array)
    assert parse(body_of({})) == {}
    assert parse(body_of({"__metadata__": {"format": "pt", "made": "{"}})) == {}


@pytest.mark.parametrize("name", DTYPES)
def test_any_layout_is_written_in_row_major_order(name):
    base = np.arange(24).reshape(2, 3, 4).astype(DTYPES[name].numpy)
    line = base.reshape(-1)
    stretched = np.broadcast_to(base[0], (2, 3, 4))
    for array in (base.T, base[:, ::2, ::-1], np.asfortranarray(base), stretched, line[::2], line[::-1], line[:0:2]):
        found, _ = read_published(b"".join(lay_out({"y": array}, {}).pieces()))
        assert_same_bits(found["y"], np.ascontiguousarray(array))
    found, _ = read_published(b"".join(lay_out({"y": base.astype(base.dtype.newbyteorder(">"))}, {}).pieces()))
    assert_same_bits(found["y"], base)


def test_wide_dtypes_come_first_and_nothing_is_copied():
    byte, double = np.ones(3, np.int8), np.ones((2, 2))
    header, first, second = lay_out({"a": byte, "b": double}, {}).pieces()
    assert len(header) % ALIGNMENT == 0
    assert np.shares_memory(np.frombuffer(first, np.float64), double)
    assert np.shares_memory(np.frombuffer(second, np.int8), byte)


def test_unknown_dtypes_are_not_written():
    for array in (np.array(None), np.array(1j, np.clongdouble), np.array("x")):
        with pytest.raises(TypeError):
            lay_out({"x": array}, {})


def test_arrays_are_views_of_the_body():
    body = b"".join(lay_out({"inputs/x": np.arange(6.0)}, {}).pieces())
    assert np.shares_memory(parse(body)["inputs"]["x"], np.frombuffer(body, np.uint8))


def test_an_unaligned_array_is_copied_to_an_aligned_address():
    for shift in range(9):
        body = body_of(json.dumps({"inputs/x": tensor()}).encode() + b" " * shift, np.float32([1, 2]).tobytes())
        found = parse(body)["inputs"]["x"]
        decoded = decode(found, "float32", LOC)
        assert decoded.flags.aligned
        assert (decoded is found) == found.flags.aligned
        assert_same_bits(decoded, np.float32([1, 2]))


def test_other_fields_are_in_the_metadata():
    header = {"inputs/x": tensor(), **metadata(inputs={"n": 3}, order=2, encoding="flat", attrs={"a": "b: c"})}
    found = parse(body_of(header, bytes(8)))
    assert list(found) == ["inputs", "order", "encoding", "attrs"]
    assert (found["order"], found["encoding"], found["attrs"]) == (2, "flat", {"a": "b: c"})
    assert found["inputs"]["n"] == 3
    assert decode(found["inputs"]["n"], "int32", LOC) == np.int32(3)
    assert found["inputs"]["x"].tolist() == [0, 0]
    # The same header again, with other data.
    again = parse(body_of(header, np.float32([1, 2]).tobytes()))
    assert again["inputs"]["x"].tolist() == [1, 2]
    assert found["inputs"]["x"].tolist() == [0, 0]


def test_tensors_can_be_in_any_order():
    one, two = np.float32([1]), np.int64([2, 3])
    header = {
        "inputs/b": tensor("I64", [2], [4, 20]),
        "inputs/none": tensor("F32", [0], [4, 4]),
        "inputs/a": tensor("F32", [1], [0, 4]),
    }
    found = parse(body_of(header, one.tobytes() + two.tobytes()))["inputs"]
    assert [found[name].tolist() for name in ("a", "b", "none")] == [[1], [2, 3], []]


MANY = {f"inputs/x{i}": tensor("F32", [0], [0, 0]) for i in range(65)}
FULL = bytes(8)
# fmt: off
MALFORMED = {
    "nothing": (b"", "got 0"),
    "no length": (b"1234567", "8 bytes of header length first, got 7 bytes"),
    "JSON": (b'{"inputs":{"x":[1,2]}}', f"at most {MAX_HEADER} bytes"),
    "a header over the limit": (body_of(b"{" + b" " * MAX_HEADER), f"{MAX_HEADER} bytes, got {MAX_HEADER + 1}"),
    "the largest length": (b"\xff" * 8 + b"{}", f"got {2**64 - 1}"),
    "a header over the body": (body_of({})[:-1], "header of 2 bytes (from the first 8 bytes), got 1"),
    "no header": (body_of(b""), "starts with {, got b''"),
    "a list": (body_of([]), "starts with {, got b'['"),
    "a blank first": (body_of(b" {}"), "starts with {, got b' '"),
    "not JSON": (body_of(b"{'x': 1}"), "in the header: line 1 column 2: not JSON"),
    "JSON cut short": (body_of(b'{"x": '), "truncated"),
    "two documents": (body_of(b"{}{}"), "not JSON"),
    "not UTF-8": (body_of(b'{"\xff": 1}'), "UTF-8"),
    "a bare NaN": (body_of(b'{"inputs/x": NaN}'), "JSON has no NaN"),
    "a name twice": (body_of(b'{"inputs/x":%(t)b,"inputs/x":%(t)b}' % {b"t": json.dumps(tensor()).encode()}, FULL),
     'duplicate key "inputs/x"'),
    "a key of an entry twice": (
        body_of(b'{"inputs/x":{"dtype":"F64","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', FULL),
        'duplicate key "dtype"',
    ),
    "many tensors": (body_of(MANY), "at most 64 tensors, got 65"),
    "an entry that is a list": (body_of({"inputs/x": [1]}), "expected an object, got a list of 1"),
    "an entry that is null": (body_of({"inputs/x": None}), "expected an object, got null"),
    "an unknown key": (body_of({"inputs/x": tensor(device="cpu")}, FULL), "keys dtype, shape, data_offsets"),
    "a key left out": (body_of({"inputs/x": {"dtype": "F32", "shape": [2]}}, FULL), "got dtype, shape"),
    "no key": (body_of({"inputs/x": {}}), "got none"),
    "a complex number": (body_of({"inputs/x": tensor("C128", [1])}, FULL),
     'F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL, C64, got the string "C128"'),
    "a bool of 2": (body_of({"inputs/x": tensor("BOOL", [2, 4])}, bytes([1, 0, 1, 0, 0, 2, 1, 255])),
     "tensor inputs/x: expected 0 or 1 for each bool, got the byte 2 at [1, 1]"),
    "a single bool of 255": (body_of({"inputs/x": tensor("BOOL", [], [0, 1])}, b"\xff"),
     "tensor inputs/x: expected 0 or 1 for each bool, got the byte 255 at []"),
    "a bool that is too long": (body_of({"inputs/x": tensor("BOOL", [2])}, FULL), "2 bytes for shape [2] of BOOL"),
    "our own spelling": (body_of({"inputs/x": tensor("float32")}, FULL), 'the string "float32"'),
    "a small spelling": (body_of({"inputs/x": tensor("f32")}, FULL), 'the string "f32"'),
    "a dtype that is a list": (body_of({"inputs/x": tensor(["F32"])}, FULL), "got a list of 1"),
    "a shape that is a number": (body_of({"inputs/x": tensor() | {"shape": 2}}, FULL),
     "8 integers from 0 to 2147483647, got 2"),
    "a shape of true": (body_of({"inputs/x": tensor(shape=[True, 2])}, FULL), "got [True, 2]"),
    "a shape of 2.0": (body_of({"inputs/x": tensor(shape=[2.0])}, FULL), "got [2.0]"),
    "a negative shape": (body_of({"inputs/x": tensor(shape=[-1, -2])}, FULL), "got [-1, -2]"),
    "a long dimension": (body_of({"inputs/x": tensor(shape=[0, 2**31], offsets=[0, 0])}), "got [0, 2147483648]"),
    "a shape of lists": (body_of({"inputs/x": tensor(shape=[[2]])}, FULL), "got a list of 1"),
    "rank 9": (body_of({"inputs/x": tensor(shape=[2, *[1] * 8])}, FULL), "got a list of 9"),
    "a vast empty shape": (body_of({"inputs/x": tensor(shape=[0, *[2**31 - 1] * 3], offsets=[0, 0])}),
     "less than 2^63 bytes"),
    "offsets that are a number": (body_of({"inputs/x": tensor() | {"data_offsets": 8}}, FULL),
     "[begin, end], two integers in order, got 8"),
    "one offset": (body_of({"inputs/x": tensor(offsets=[8])}, FULL), "got [8]"),
    "three offsets": (body_of({"inputs/x": tensor(offsets=[0, 8, 8])}, FULL), "got [0, 8, 8]"),
    "offsets of strings": (body_of({"inputs/x": tensor(offsets=["0", "8"])}, FULL), "got a list of 2"),
    "offsets of floats": (body_of({"inputs/x": tensor(offsets=[0.0, 8.0])}, FULL), "got [0.0, 8.0]"),
    "offsets of false": (body_of({"inputs/x": tensor(offsets=[False, 8])}, FULL), "got [False, 8]"),
    "negative offsets": (body_of({"inputs/x": tensor(offsets=[-8, 0])}, FULL), "got [-8, 0]"),
    "offsets out of order": (body_of({"inputs/x": tensor(offsets=[8, 0])}, FULL), "two integers in order, got [8, 0]"),
    "data that are too long": (body_of({"inputs/x": tensor(shape=[1])}, FULL),
     "4 bytes for shape [1] of F32, got 8 bytes"),
    "data that are too short": (body_of({"inputs/x": tensor("F64")}, FULL),
     "16 bytes for shape [2] of F64, got 8 bytes"),
    "a scalar without data": (body_of({"inputs/x": tensor(shape=[], offsets=[0, 0])}),
     "4 bytes for shape [] of F32, got 0"),
    "offsets out of range": (body_of({"inputs/x": tensor()}, bytes(7)), "expected 8 bytes of data after the header"),
    "vast offsets": (body_of({"inputs/x": tensor("U8", [2**31 - 1], [2**62, 2**62 + 2**31 - 1])}, FULL), "(gap)"),
    "data that nobody names": (body_of({"inputs/x": tensor()}, bytes(9)), "(data_offsets), got 9"),
    "data without tensors": (body_of({}, b"x"), "expected 0 bytes of data after the header (data_offsets), got 1"),
    "a hole at the beginning": (body_of({"inputs/x": tensor(offsets=[4, 12])}, bytes(12)),
     "data_offsets that begin at 0, got 4 (gap)"),
    "a hole between": (body_of({"inputs/x": tensor(), "inputs/z": tensor(offsets=[9, 17])}, bytes(17)),
     "tensor inputs/z: expected data_offsets that begin at 8, got 9 (gap)"),
    "an overlap": (body_of({"inputs/x": tensor(), "inputs/z": tensor(offsets=[4, 12])}, bytes(12)),
     "tensor inputs/z: expected data_offsets that begin at 8, got 4 (overlap)"),
    "the same data twice": (body_of({"inputs/x": tensor(), "inputs/z": tensor()}, FULL), "(overlap)"),
    "an empty tensor within another": (body_of({"inputs/x": tensor(), "inputs/z": tensor(shape=[0], offsets=[4, 4])},
     FULL), "(overlap)"),
    "a bare name": (body_of({"x": tensor()}, FULL), "tensor x: expected a name such as inputs/x"),
    "no name": (body_of({"inputs/": tensor()}, FULL), "tensor inputs/: expected a name such as inputs/x"),
    "a longer path": (body_of({"inputs/x/y": tensor()}, FULL), "tensor inputs/x/y: expected a name such as inputs/x"),
    "another field": (body_of({"attrs/x": tensor()}, FULL), "one of inputs, cotangents, tangents, vectors"),
    "an empty name": (body_of({"": tensor()}, FULL), "a name such as inputs/x"),
    "a long name": (body_of({"n" * 100_000: tensor()}, FULL), "nnn…: expected a name such as inputs/x"),
    "metadata that are a list": (body_of({"__metadata__": []}),
     "__metadata__: expected an object of strings, got a list of 0"),
    "metadata that are null": (body_of({"__metadata__": None}),
     "__metadata__: expected an object of strings, got null"),
    "metadata of numbers": (body_of({"__metadata__": {"epoch": 3}}), "__metadata__.epoch: expected a string, got 3"),
    "fields that are no string": (body_of({"__metadata__": {"pullback": {}}}),
     "__metadata__.pullback: expected a string"),
    "fields that are not JSON": (body_of({"__metadata__": {"pullback": "order=2"}}),
     "in __metadata__.pullback: line 1"),
    "fields that are empty": (body_of({"__metadata__": {"pullback": ""}}),
     "in __metadata__.pullback: the body is empty"),
    "fields that are a list": (body_of({"__metadata__": {"pullback": "[1]"}}),
     "expected an object in __metadata__.pullback, got a list of 1"),
    "a field twice": (body_of({"__metadata__": {"pullback": '{"order":1,"order":2}'}}), 'duplicate key "order"'),
    "a tensor twice": (body_of({"inputs/x": tensor(), **metadata(inputs={"x": [1, 2]})}, FULL),
     "tensor inputs/x: expected each tensor once, here or in __metadata__.pullback, got both"),
    "a field of another kind": (body_of({"inputs/x": tensor(), **metadata(inputs=[1])}, FULL),
     "expected an object under inputs in __metadata__.pullback, or no such field, got a list of 1"),
    "a field that is null": (body_of({"cotangents/y": tensor(), **metadata(cotangents=None)}, FULL), "got null"),
}
# fmt: on


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_safetensors_are_refused_with_a_reason(name):
    body, reason = MALFORMED[name]
    for kind in (bytes, bytearray, memoryview):
        assert reason in refusal(kind(body))


def test_a_header_of_the_largest_size_is_read():
    text = json.dumps({"inputs/x": tensor()}).encode()
    assert parse(body_of(text + b" " * (MAX_HEADER - len(text)), FULL))["inputs"]["x"].tolist() == [0, 0]


@pytest.mark.parametrize("where", ["shape", "data_offsets"])
def test_deep_lists_are_refused(where):
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    assert "got a list of 1" in refusal(body_of({"inputs/x": tensor() | {where: deep}}, FULL))


@pytest.mark.parametrize("wanted", [name for name in DTYPES if name != "float32"])
def test_a_dtype_mismatch_has_the_same_message_as_in_json(wanted):
    found = []
    typed = {"dtype": "float32", "shape": [2], "data": [1, 2]}
    for value in (np.float32([1, 2]), typed):
        with pytest.raises(Unprocessable) as caught:
            decode(value, wanted, LOC)
        found.append(caught.value.entries)
    assert found[0] == found[1]
    assert found[0][0].loc == ("inputs", "x", "dtype")


def raises_nothing_else(body: bytes) -> None:
    try:
        parse(body)
    except PullbackError as error:
        error.document("/")


@settings(max_examples=300, deadline=None, database=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body):
    raises_nothing_else(body)
    raises_nothing_else(body_of(body, body))
    raises_nothing_else(body_of(b"{" + body))


SOME_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
SOME_ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*SPELLINGS, "BOOL"]) | SOME_JSON,
        "shape": st.lists(st.sampled_from([0, 1, 2, 2**31 - 1])) | SOME_JSON,
        "data_offsets": st.lists(st.sampled_from([0, 4, 8, 16]), min_size=2, max_size=2) | SOME_JSON,
    }
)
SOME_HEADERS = st.dictionaries(st.sampled_from(["inputs/x", "inputs/y", "tangents/x", "x"]), SOME_ENTRIES | SOME_JSON)


@settings(max_examples=300, deadline=None, database=None)
@given(SOME_HEADERS, SOME_JSON, st.integers(0, 24))
def test_any_header_is_read_or_refused(header, meta, size):
    raises_nothing_else(body_of(header, bytes(size)))
    raises_nothing_else(body_of(header | {"__metadata__": meta}, bytes(size)))
    raises_nothing_else(body_of(header | {"__metadata__": {"pullback": json.dumps(meta)}}, bytes(size)))


@PROPERTY
@given(st.data())
def test_a_body_with_a_changed_byte_is_read_or_refused(data):
    body = bytearray(b"".join(lay_out({"inputs/x": np.arange(4.0), "inputs/y": np.int8([1])}, {"order": 2}).pieces()))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    raises_nothing_else(bytes(body))
    raises_nothing_else(bytes(body[: data.draw(st.integers(0, len(body)))]))


def test_the_reader_of_this_test_covers_every_dtype():
    assert set(SPELLINGS.values()) == set(DTYPES)
