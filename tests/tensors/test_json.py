"""Tensors in JSON: bit-for-bit round trips, and errors located at the element that caused them."""

import base64
import json
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from app.errors import Unprocessable
from app.tensors import layouts
from app.tensors.dtypes import DTYPES
from app.tensors.json import decode
from app.tensors.layouts import encode, lay_out
from app.tensors.strict_json import parse


def dumps(document: object) -> bytes:
    return b"".join(lay_out(document).pieces())


ENCODINGS = ["nested", "flat", "base64"]
LOC = ("inputs", "x")
PROPERTY = settings(max_examples=40, deadline=None, database=None)
SHAPES = st.one_of(
    hnp.array_shapes(min_dims=0, max_dims=8, min_side=0, max_side=2),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)


def round_trip(array, encoding):
    body = dumps({"x": encode(array, encoding)})
    json.loads(body, parse_constant=pytest.fail)
    return decode(parse(body)["x"], array.dtype.newbyteorder("=").name, LOC)


def is_nan(array):
    with np.errstate(invalid="ignore"):  # a signalling NaN is one
        return np.isnan(array)


def digits(text):
    return text.split("e")[0].replace(".", "").strip("-0")


def assert_same_bits(result, array):
    assert (result.shape, result.dtype) == (array.shape, array.dtype)
    assert result.flags.c_contiguous
    if DTYPES[array.dtype.name].is_float:  # JSON has one NaN
        nan = is_nan(array)
        assert (is_nan(result) == nan).all()
        result, array = np.where(nan, 0, result).astype(array.dtype), np.where(nan, 0, array).astype(array.dtype)
    assert result.tobytes() == array.tobytes()


def arrays(name):
    """Draw arrays of every shape from random bits, which include NaN, infinities, subnormals and -0.0."""
    row = DTYPES[name]
    if row.is_bool:
        return hnp.arrays(np.bool_, SHAPES)
    special = [0, 1, 1 << (8 * row.itemsize - 1)]
    if row.is_float:
        words = np.array([math.nan, math.inf, -math.inf, 1, 0.1, -0.0], row.numpy)
        special += words.view(f"u{row.itemsize}").tolist()
    bits = st.one_of(st.sampled_from(special), st.integers(0, 2 ** (8 * row.itemsize) - 1))
    return hnp.arrays(f"u{row.itemsize}", SHAPES, elements=bits).map(lambda array: array.view(row.numpy))


def refusal(value, dtype="float32"):
    with pytest.raises(Unprocessable) as caught:
        decode(value, dtype, LOC)
    (entry,) = caught.value.entries
    assert caught.value.document("/")["errors"]
    assert entry.loc[:2] == LOC
    return entry.loc[2:], entry.message, entry.got


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", DTYPES)
def test_a_round_trip_keeps_every_bit(name, encoding):
    @PROPERTY
    @given(arrays(name))
    def check(array):
        assert_same_bits(round_trip(array, encoding), array)

    check()


@pytest.mark.parametrize("encoding", ["nested", "flat"])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_a_round_trip_keeps_every_short_float(name, encoding):
    array = np.arange(2**16, dtype=np.uint16).view(DTYPES[name].numpy)
    assert_same_bits(round_trip(array, encoding), array)
    finite = array[np.isfinite(array.astype(np.float32))]
    assert_same_bits(round_trip(finite, encoding), finite)


@pytest.mark.parametrize("bits", [0x15AE43FD, 0x95AE43FD])
def test_a_float32_with_a_misleading_short_text_keeps_its_bits(bits):
    array = np.array([bits, 0x3F800000], np.uint32).view(np.float32)
    assert_same_bits(round_trip(array, "nested"), array)
    assert_same_bits(round_trip(array[0].reshape(()), "nested"), array[0].reshape(()))
    text = json.loads(dumps(encode(array, "nested")))["data"]
    assert np.array(text, np.float32).tobytes() == array.tobytes()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("name", "bits"),
    [("float16", 0x7D00), ("bfloat16", 0x7F81), ("float32", 0x7F800001), ("float64", 0x7FF0000000000001)],
)
def test_a_signalling_nan_gives_no_warning(name, bits, encoding):
    row = DTYPES[name]
    array = np.full(40, bits, f"u{row.itemsize}").view(row.numpy)
    assert is_nan(round_trip(array, encoding)).all()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_any_layout_is_written_in_row_major_order(encoding):
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for array in (
        base.T,
        base[:, ::2, ::-1],
        np.asfortranarray(base),
        base.astype(">f4"),
        np.broadcast_to(base[0], (2, 3, 4)),
    ):
        assert_same_bits(round_trip(array, encoding), np.ascontiguousarray(array, np.float32))


def test_encode_gives_the_documented_forms():
    array = np.array([[0.7310586, 1], [-0.0, 2.5]], np.float32)
    head = '{"dtype":"float32","shape":[2,2],'
    assert dumps(encode(array, "nested")).decode() == head + '"data":[[0.7310586,1.0],[-0.0,2.5]]}\n'
    assert dumps(encode(array, "flat")).decode() == head + '"data":[0.7310586,1.0,-0.0,2.5]}\n'
    text = base64.b64encode(array.tobytes()).decode()
    assert dumps(encode(array, "base64")).decode() == f'{head}"base64":"{text}"}}\n'


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_non_finite_numbers_are_words_and_leave_their_neighbours_unchanged(name):
    @PROPERTY
    @given(arrays(name).filter(lambda array: array.size > 0))
    def check(array):
        array = array.reshape(-1)
        finite = array[np.isfinite(array)]
        expected = json.loads(dumps(encode(finite, "flat")), parse_float=str)["data"]
        got = json.loads(dumps(encode(array, "flat")), parse_float=str)["data"]
        words = {"NaN", "Infinity", "-Infinity"}
        got = [text for text in got if text not in words]
        assert [float(text) for text in got] == [float(text) for text in expected]
        assert [digits(text) for text in got] == [digits(text) for text in expected]

    check()
    value = np.array(0.7310586, DTYPES[name].numpy)
    text = dumps(encode(value, "nested")["data"]).strip()
    mixed = np.array([value, np.nan, np.inf, -np.inf], DTYPES[name].numpy)
    assert dumps(encode(mixed, "nested")["data"]) == b"[" + text + b',"NaN","Infinity","-Infinity"]\n'


@pytest.mark.parametrize("bad", [np.array(["x"]), np.array([1j], np.clongdouble), np.array([None])])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_dtype_without_a_name_is_not_encoded(bad, encoding):
    with pytest.raises(TypeError):
        encode(bad, encoding)


@pytest.mark.parametrize(
    ("shape", "nested"),
    [((0,), "[]"), ((0, 3), "[]"), ((2, 0), "[[],[]]"), ((2, 0, 3), "[[],[]]"), ((1, 2, 0), "[[[],[]]]")],
)
def test_empty_arrays_keep_the_shape_that_lists_can_express(shape, nested):
    array = np.zeros(shape, np.float32)
    assert dumps(encode(array, "nested")["data"]).decode() == nested + "\n"
    assert dumps(encode(array, "flat")["data"]) == b"[]\n"
    assert parse(dumps(encode(array, "base64")))["base64"] == ""
    for encoding in ENCODINGS:
        assert round_trip(array, encoding).shape == shape
    shown = shape[: shape.index(0) + 1]
    assert decode(json.loads(nested), "float32", LOC).shape == shown


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_number_has_rank_zero(encoding):
    for value in (np.float32(1.5), np.float32(np.nan), np.float16(3)):
        array = np.array(value)
        assert_same_bits(round_trip(array, encoding), array)
    assert round_trip(np.array(2**64 - 1, np.uint64), encoding) == 2**64 - 1
    assert decode(3, "int8", LOC).shape == decode("NaN", "float16", LOC).shape == ()


@pytest.mark.parametrize("name", DTYPES)
def test_nested_lists_match_numpy(name):
    @PROPERTY
    @given(arrays(name))
    def check(array):
        with np.errstate(invalid="ignore"):  # a signalling NaN
            plain = np.nan_to_num(array.astype(np.float64), posinf=1, neginf=1) if DTYPES[name].is_float else array
        lists = plain.tolist()
        result = decode(parse(dumps(lists)), name, LOC)
        assert result.shape == np.array(lists).shape
        assert result.astype(plain.dtype).ravel().tolist() == plain.ravel().tolist()

    check()


DIGITS = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][-+]?[0-9]{1,2})?", fullmatch=True)


@PROPERTY
@given(st.lists(DIGITS, min_size=1, max_size=4))
def test_decimal_text_becomes_the_nearest_float64(tokens):
    result = decode(parse(f"[{','.join(tokens)}]".encode()), "float64", LOC)
    for value, token in zip(result.tolist(), tokens, strict=True):
        exact = Fraction(token)
        for neighbour in (math.nextafter(value, math.inf), math.nextafter(value, -math.inf)):
            assert abs(Fraction(value) - exact) <= abs(Fraction(neighbour) - exact)


@pytest.mark.parametrize("name", [name for name in DTYPES if "int" in name])
def test_decimal_text_becomes_the_exact_integer_or_is_refused(name):
    """Float64 tells texts of up to 15 digits apart; a longer one with a point or an exponent is rounded to it first."""

    @PROPERTY
    @given(st.one_of(DIGITS, st.integers(-(2**70), 2**70).map(str), st.integers(-300, 300).map(str)))
    @example("200000000000000.1")
    @example("2000000000000000.1")
    def check(token):
        digits = token.lower().partition("e")[0].replace(".", "").lstrip("-0")
        is_exact = token.lstrip("-").isdigit() or len(digits) <= sys.float_info.dig
        exact, row = Fraction(token if is_exact else float(token)), DTYPES[name]
        try:
            result = decode(parse(token.encode()), name, LOC)
        except Unprocessable:
            assert exact.denominator > 1 or not row.low <= exact <= row.high or not token.lstrip("-").isdigit()
        else:
            assert Fraction(int(result)) == exact

    check()


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bool"])
@pytest.mark.parametrize("value", [True, [True], [[1, False]], {"dtype": ..., "shape": [2], "data": [1, True]}])
def test_a_bool_is_refused_as_a_number(name, value):
    value = {**value, "dtype": name} if isinstance(value, dict) else value
    assert refusal(value, name)[1:] == ("expected a number", "false" if value == [[1, False]] else "true")


@pytest.mark.parametrize(
    ("value", "where", "message", "got"),
    [
        (1, (), "expected a bool", "1"),
        (None, (), "expected a bool", "null"),
        ([True, 0], (1,), "expected a bool", "0"),
        ([[True, False], [False, 1.0]], (1, 1), "expected a bool", "1.0"),
        ([True, "true"], (1,), "expected a bool", 'the string "true"'),
        ([True, None, 1], (1,), "expected a bool", "null"),
        ([True, {"dtype": "bool"}], (1,), "expected a bool", "an object"),
        ([True, [False]], (1,), "ragged nested lists", "a list of 1"),
        ([[False], True], (1,), "ragged nested lists", "true"),
        ([1, [True]], (0,), "ragged nested lists", "1"),
        ({"dtype": "bool", "shape": [2], "data": [True, 1]}, ("data", 1), "expected a bool", "1"),
        ({"dtype": "bool", "shape": [1, 2], "data": [[True, 1]]}, ("data", 0, 1), "expected a bool", "1"),
        ({"dtype": "uint8", "shape": [1], "data": [1]}, ("dtype",), "typed tensors are not cast", "uint8"),
        ({"dtype": "bool", "shape": [2], "base64": "AQI="}, ("base64", 1), "invalid bool byte", "2"),
        ({"dtype": "bool", "shape": [2, 2], "base64": "AQAA/w=="}, ("base64", 1, 1), "invalid bool byte", "255"),
        ({"dtype": "bool", "shape": [], "base64": "gA=="}, ("base64",), "invalid bool byte", "128"),
        (
            {"dtype": "bool", "shape": [2], "base64": "AQ=="},
            ("base64",),
            "base64 does not match the shape",
            "1 bytes",
        ),
    ],
)
def test_an_invalid_bool_is_refused_at_its_index(value, where, message, got):
    place, text, description = refusal(value, "bool")
    assert (place, text) == (where, message)
    assert got in description


@PROPERTY
@given(st.lists(st.sampled_from([0, 1, 1, 2, 128, 255]), min_size=1, max_size=40))
def test_base64_of_bools_is_bytes_of_0_and_1(raw):
    tensor = {"dtype": "bool", "shape": [len(raw)], "base64": base64.b64encode(bytes(raw)).decode()}
    wrong = [i for i, byte in enumerate(raw) if byte > 1]
    if wrong:
        where, _, got = refusal(tensor, "bool")
        assert (where, got) == (("base64", wrong[0]), str(raw[wrong[0]]))
    else:
        assert decode(tensor, "bool", LOC).tolist() == [byte == 1 for byte in raw]


def test_bools_are_encoded_as_bools():
    array = np.array([[True, False], [False, True]])
    head = '{"dtype":"bool","shape":[2,2],'
    assert dumps(encode(array, "nested")).decode() == head + '"data":[[true,false],[false,true]]}\n'
    assert dumps(encode(array, "flat")).decode() == head + '"data":[true,false,false,true]}\n'
    assert dumps(encode(array, "base64")).decode() == head + '"base64":"AQAAAQ=="}\n'
    assert dumps(encode(np.array(True), "nested")).decode() == '{"dtype":"bool","shape":[],"data":true}\n'


def with_replacement(lists, index, value):
    if not index:
        return value
    return [with_replacement(item, index[1:], value) if i == index[0] else item for i, item in enumerate(lists)]


def places(min_dims):
    shapes = hnp.array_shapes(min_dims=min_dims, max_dims=4, max_side=4)
    return shapes.flatmap(lambda s: st.tuples(st.just(s), st.tuples(*(st.integers(0, n - 1) for n in s))))


@PROPERTY
@given(places(1), st.sampled_from([None, True, "3", {"dtype": "float32"}, 1e300, -(10**15) * 1e25]))
def test_an_invalid_element_is_refused_at_its_index(place, bad):
    shape, index = place
    lists = np.ones(shape).tolist()
    assert refusal(with_replacement(lists, index, bad))[0] == index
    tensor = {"dtype": "float32", "shape": list(shape), "data": with_replacement(lists, index, bad)}
    assert refusal(tensor)[0] == ("data", *index)
    flat = [1.0] * math.prod(shape)
    flat[np.ravel_multi_index(index, shape)] = bad
    assert refusal({**tensor, "data": flat})[0] == ("data", int(np.ravel_multi_index(index, shape)))


@PROPERTY
@given(places(2), st.data())
def test_ragged_lists_are_refused_at_their_index(place, data):
    shape, index = place
    depth = data.draw(st.integers(1, len(shape) - 1))
    if math.prod(shape[:depth]) == 1:
        return
    index = index[:depth]
    lists = np.ones(shape).tolist()
    row = np.ones(shape[depth:]).tolist()
    longer = with_replacement(lists, index, [*row, row[0]])
    where, message, got = refusal(longer)
    assert message == "ragged nested lists"
    first = not any(index)
    assert (where == index and got == f"a list of {len(row) + 1}") or (first and got == f"a list of {len(row)}")
    where, message, got = refusal(with_replacement(lists, index, 7.5))
    assert message == "ragged nested lists"
    assert (where == index and got == "7.5") or first


@pytest.mark.parametrize(
    ("value", "where", "got"),
    [
        ([[1, 2], [3]], (1,), "a list of 1"),
        ([[1], []], (1,), "a list of 0"),
        ([[], [1]], (1,), "a list of 1"),
        ([1, [2]], (1,), "a list of 1"),
        ([[2], 1], (1,), "1"),
        ([[1], None], (1,), "null"),
        ([None, [1]], (0,), "null"),
        ([[[1, 2], [3, 4]], [[1, 2], [3]]], (1, 1), "a list of 1"),
    ],
)
def test_errors_of_ragged_lists_name_index_and_length(value, where, got):
    assert refusal(value) == (where, "ragged nested lists", got)


def test_the_rank_is_limited():
    eight = parse(b"[" * 8 + b"1" + b"]" * 8)
    assert decode(eight, "float32", LOC).shape == (1,) * 8
    for depth in (9, 10, 1000):
        deep = parse(b"[" * depth + b"1" + b"]" * depth)
        assert refusal(deep)[:2] == ((), "tensor nested too deeply")
        assert refusal({"dtype": "float32", "shape": [1], "data": deep})[0] == ("data",)
        assert refusal({"dtype": deep, "shape": [1], "data": 1})[0] == ("dtype",)
        assert refusal({"dtype": "float32", "shape": [deep], "data": 1})[0] == ("shape", 0)
        assert refusal({"dtype": "float32", "shape": [1], "base64": deep})[0] == ("base64",)
        assert refusal([1, {"a": deep}])[0] == (1,)


GOOD = {"dtype": "float32", "shape": [2], "data": [1, 2]}
LARGE = 2**31 - 1


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        ({"dtype": "float64"}, ("dtype",), "not cast"),
        ({"dtype": "nope"}, ("dtype",), "not cast"),
        ({"dtype": None}, ("dtype",), "not cast"),
        ({"dtype": ["float32"]}, ("dtype",), "not cast"),
        ({"dtype": ...}, ("dtype",), "no dtype"),
        ({"shape": ...}, ("shape",), "no shape"),
        ({"data": ...}, ("data",), "no data"),
        ({"base64": ""}, ("base64",), "data twice"),
        ({"order": "C"}, ("order",), "unknown key"),
        ({"shape": 2}, ("shape",), "a list of integers"),
        ({"shape": None}, ("shape",), "a list of integers"),
        ({"shape": "2"}, ("shape",), "a list of integers"),
        ({"shape": [2.0]}, ("shape", 0), "invalid dimension"),
        ({"shape": [1, True]}, ("shape", 1), "invalid dimension"),
        ({"shape": [-2]}, ("shape", 0), "invalid dimension"),
        ({"shape": ["2"]}, ("shape", 0), "invalid dimension"),
        ({"shape": [2**31]}, ("shape", 0), "invalid dimension"),
        ({"shape": [2**64 - 1]}, ("shape", 0), "invalid dimension"),
        ({"shape": [1] * 8 + [2]}, ("shape",), "too many dimensions"),
        ({"shape": [LARGE, LARGE, LARGE]}, ("shape",), "too large"),
        ({"shape": [LARGE, LARGE, LARGE, 0], "data": []}, ("shape",), "too large"),
        ({"shape": [LARGE, LARGE]}, ("shape",), "too large"),
        ({"shape": [LARGE]}, ("data",), "does not match"),
        ({"shape": [LARGE, 1024]}, ("data",), "does not match"),
        ({"shape": [3]}, ("data",), "does not match"),
        ({"shape": []}, ("data",), "does not match"),
        ({"shape": [0]}, ("data",), "does not match"),
        ({"shape": [1, 2], "data": [[1], [2]]}, ("data",), "does not match"),
        ({"shape": [1], "data": 1}, ("data",), "does not match"),
        ({"shape": [2, 3], "data": [[1, 2], [3, 4], [5, 6]]}, ("data",), "does not match"),
        ({"shape": [0, 3], "data": [[], []]}, ("data",), "does not match"),
        ({"data": [1, [2]]}, ("data", 1), "ragged"),
        ({"data": [1, None]}, ("data", 1), "expected a number"),
        ({"data": None}, ("data",), "does not match"),
        ({"shape": [], "data": None}, ("data",), "expected a number"),
        ({"data": {"dtype": "float32"}}, ("data",), "does not match"),
    ],
)
def test_errors_of_a_typed_tensor_name_the_field(change, where, message):
    tensor = {key: value for key, value in {**GOOD, **change}.items() if value is not ...}
    place, text, _ = refusal(tensor)
    assert place == where
    assert message in text


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (GOOD, [1, 2]),
        ({"dtype": "float32", "shape": [], "data": 1.5}, 1.5),
        ({"dtype": "float32", "shape": [], "data": [1.5]}, 1.5),
        ({"dtype": "float32", "shape": [2, 1], "data": [[1], ["Infinity"]]}, [[1], [math.inf]]),
        ({"dtype": "float32", "shape": [2, 1], "data": [1, 2]}, [[1], [2]]),
        ({"dtype": "float32", "shape": [2, 0], "data": []}, [[], []]),
    ],
)
def test_typed_data_is_flat_or_nested_like_its_shape(tensor, expected):
    assert decode(tensor, "float32", LOC).tolist() == expected


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("AAAA", [1]),  # three bytes
        ("AACAPw=", [1]),
        ("AACAPw", [1]),
        ("AACAPw==AACAPw==", [1]),
        ("AACAPw==", [2]),
        ("AACAPw==", [0]),
        ("AACA Pw=", [1]),
        ("AACAPw\n=", [1]),
        ("AACAP===", [1]),
        ("====AAAA", [1]),
        ("AACA-_==", [1]),
        ("AACAé===", [1]),
        ("AACAPwAA", [1]),  # the length is that of four bytes, the content six
        ("", [1]),
        ("", [LARGE]),
        (None, [1]),
        (3, [1]),
        (["AACAPw=="], [1]),
    ],
)
def test_invalid_base64_is_refused(text, shape):
    where, message, _ = refusal({"dtype": "float32", "shape": shape, "base64": text})
    assert where == ("base64",)
    assert "base64" in message


@PROPERTY
@given(st.binary(max_size=40))
def test_base64_is_little_endian_bytes(raw):
    size = len(raw) // 4
    tensor = {"dtype": "uint32", "shape": [size], "base64": base64.b64encode(raw[: 4 * size]).decode()}
    expected = [int.from_bytes(raw[4 * i : 4 * i + 4], "little") for i in range(size)]
    assert decode(tensor, "uint32", LOC).tolist() == expected


PIECE = 3 << 15


@pytest.mark.parametrize("count", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 2])
def test_base64_in_pieces_equals_base64_in_one(count: int):
    raw = np.random.default_rng(5).integers(0, 256, count, np.uint8)
    text = base64.b64encode(raw.tobytes()).decode()
    assert parse(dumps(encode(raw, "base64")))["base64"] == text
    assert decode({"dtype": "uint8", "shape": [count], "base64": text}, "uint8", LOC).tobytes() == raw.tobytes()


def test_padding_at_the_end_of_a_piece_is_refused():
    """The length fits that many bytes, and each piece alone is valid base64."""
    text = base64.b64encode(bytes(PIECE - 1)).decode() + base64.b64encode(bytes(3)).decode()
    where, message, _ = refusal({"dtype": "uint8", "shape": [PIECE + 2], "base64": text}, "uint8")
    assert where == ("base64",)
    assert message == "invalid base64"


def test_got_is_brief():
    vast = {"a": [None] * 1000}
    for bad in (vast, [vast], "x" * 100_000, [["x" * 100_000]]):
        assert len(refusal(bad)[2]) <= 200


def test_an_unknown_dtype_is_a_client_error():
    with pytest.raises(KeyError):
        decode(1, "complex32", LOC)


SHAPES_IN_PARTS = [(70,), (1, 70), (70, 1), (3, 4, 5), (2, 1, 40), (40, 2, 1), (0,), (0, 5), (1, 1, 1, 9), (13, 11)]


# Parts depend on the shape alone, and what a number is written as on the dtype alone.
@pytest.mark.parametrize(
    ("dtype", "shape", "part"),
    [
        *(("float32", shape, part) for shape in SHAPES_IN_PARTS for part in (1, 3, 7, 64)),
        *((dtype, (3, 4, 5), 7) for dtype in ("float16", "float64", "int64", "bool")),
    ],
)
def test_an_array_in_parts_has_the_same_text(monkeypatch, dtype: str, shape: tuple[int, ...], part: int):
    array = np.random.default_rng(part).uniform(-9, 9, shape).astype(dtype)
    with_words = array.copy()
    if array.size and array.dtype.kind == "f":
        with_words.reshape(-1)[[array.size // 2, -1]] = np.nan, -np.inf
    for numbers in (array, with_words):
        for encoding in ("nested", "flat"):
            whole = dumps(encode(numbers, encoding))
            monkeypatch.setattr(layouts, "_PART", part)
            assert dumps(encode(numbers, encoding)) == whole
            monkeypatch.undo()
