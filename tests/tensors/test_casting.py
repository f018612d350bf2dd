"""Casts against exact arithmetic: a value is cast to the nearest one or refused."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from app.tensors import casting
from app.tensors.casting import Loss
from app.tensors.dtypes import DTYPES

# digits of the significand, exponent of the smallest subnormal, exponent above the largest number
FORMATS = {
    "float16": (11, -24, 16),
    "bfloat16": (8, -133, 128),
    "float32": (24, -149, 128),
    "float64": (53, -1074, 1024),
}
INTEGERS = [name for name in DTYPES if "int" in name]
BOUNDS = sorted({int(bound) for name in INTEGERS for bound in (DTYPES[name].low, DTYPES[name].high)})


def nearest(exact: Fraction, digits: int, smallest: int, top: int) -> Fraction | None:
    """Return the number of the format nearest to ``exact``, ties to even; ``None`` if it is infinite."""
    magnitude = exact.numerator.bit_length() - exact.denominator.bit_length()
    unit = Fraction(2) ** max(smallest, magnitude - digits - 1)
    while abs(exact) >= unit * 2**digits:
        unit *= 2
    value = round(exact / unit) * unit
    return value if abs(value) < Fraction(2) ** top else None


def cast(values, name):
    return casting.cast(values, set(map(type, values)), DTYPES[name])


def attempt(values, name):
    try:
        return cast(values, name)
    except Loss as loss:
        return loss


def beside_a_tie(name):
    """Draw float64 numbers at, just above and just below midpoints between neighbours of a shorter format."""
    digits, smallest, top = FORMATS[name]

    def build(significand, exponent, nudge, negative):
        tie = float(Fraction(2 * significand + 1) * Fraction(2) ** (exponent - 1))
        value = np.nextafter(tie, np.inf * nudge) if nudge else tie
        return -float(value) if negative else float(value)

    exponents = st.integers(smallest, top - digits)
    return st.builds(build, st.integers(0, 2**digits - 1), exponents, st.sampled_from([-1, 0, 1]), st.booleans())


def numbers(name):
    finite = st.floats(allow_nan=False, allow_infinity=False)
    near = st.floats(-(2.0**17), 2.0**17)
    whole = st.integers(-(2**63), 2**64 - 1)
    return st.one_of(finite, near, whole, beside_a_tie(name) if name != "float64" else finite)


@pytest.mark.parametrize("name", FORMATS)
def test_a_float_is_rounded_to_nearest_or_refused(name):
    @settings(max_examples=200, deadline=None, database=None)
    @given(numbers(name))
    @example(2**53 + 1)
    @example(2**64 - 1)
    @example(-0.0)
    @example(5e-324)
    @example(1 + 2.0**-8 + 2.0**-40)
    @example(DTYPES[name].high if name != "float64" else 0.0)
    @example(float(np.nextafter(DTYPES[name].high, 0)))
    def check(value):
        # a number means the nearest float64; only an integer may not be a float64 already
        expected = nearest(Fraction(float(value)), *FORMATS[name])
        result = attempt([value], name)
        if isinstance(result, Loss):
            assert expected is None
            assert (result.index, result.got) == (0, str(float(value)))
        else:
            assert result.dtype == DTYPES[name].numpy
            assert Fraction(float(result[0])) == expected
            assert np.signbit(result[0]) == np.signbit(float(value))

    check()


@pytest.mark.parametrize("name", FORMATS)
def test_a_long_list_is_cast_like_its_elements(name):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(5000).tolist()
    assert cast(values, name).tobytes() == b"".join(cast([value], name).tobytes() for value in values)


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_is_exact_or_refused(name):
    tokens = st.one_of(
        st.integers(-(2**63), 2**64 - 1),
        st.builds(
            lambda bound, by: min(max(bound + by, -(2**63)), 2**64 - 1), st.sampled_from(BOUNDS), st.integers(-2, 2)
        ),
        st.integers(-(2**54), 2**54).map(float),
        st.integers(-300, 300).map(float),
        st.integers(-600, 600).map(lambda halves: halves / 2),
        st.floats(),
    )

    @settings(max_examples=100, deadline=None, database=None)
    @given(st.lists(tokens, min_size=1, max_size=5))
    @example([2**64 - 1, -1])
    @example([2**63, 0.0])
    @example([2.0**53 - 1])
    @example([2.0**53])
    @example([-(2.0**53)])
    @example([2.0**64])
    @example([-0.0])
    def check(values):
        row = DTYPES[name]
        good = [(type(v) is int or (v.is_integer() and abs(v) < 2**53)) and row.low <= v <= row.high for v in values]
        result = attempt(values, name)
        if isinstance(result, Loss):
            assert not good[result.index]
        else:
            assert all(good)
            assert result.dtype == row.numpy
            assert result.tolist() == [int(v) for v in values]

    check()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("length", [3, 500])
def test_words_are_floats(name, length):
    result = cast(["NaN", "Infinity", "-Infinity", *[1.5] * length], name).astype(np.float64)
    assert np.isnan(result[0])
    assert result[1:].tolist() == [np.inf, -np.inf, *[1.5] * length]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("length", [1, 500])
def test_digits_are_integers(name, length):
    info = np.iinfo(name)
    result = cast([str(info.max), str(info.min), "0", *[1] * length], name)
    assert result.tolist() == [info.max, info.min, 0, *[1] * length]


@pytest.mark.parametrize("length", [4, 500])
@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_an_overflow_is_found_beside_a_word(word, length):
    for index in (0, 1, length - 1):
        values = [word] * length
        values[index] = -1e300
        with pytest.raises(Loss) as caught:
            cast(values, "float32")
        assert (caught.value.index, caught.value.got) == (index, "-1e+300")


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_an_invalid_number_is_found_after_a_word(word):
    with pytest.raises(Loss, match="expected a number") as caught:
        cast([word, None], "float32")
    assert (caught.value.index, caught.value.got) == (1, "null")


INVALID = [
    (None, "null"),
    (True, "true"),
    (False, "false"),
    ("3.", 'the string "3."'),
    ("nan", 'the string "nan"'),
    ("inf", 'the string "inf"'),
    ("x" * 10_000, "a string of 10000 characters"),
    ({"a": 1}, "an object"),
    ([1, [2]], "a list of 2"),
]


# All floats are cast in one way, and all integers in another.
@pytest.mark.parametrize(
    ("name", "bad", "got"),
    [
        *((name, *invalid) for name in ("float32", "int32") for invalid in INVALID),
        *((name, *INVALID[3]) for name in [*FORMATS, *INTEGERS] if name not in ("float32", "int32")),
    ],
)
@pytest.mark.parametrize("length", [1, 500])
def test_an_invalid_number_is_refused_at_its_index(name, length, bad, got):
    with pytest.raises(Loss, match="expected a number") as caught:
        cast([*[1] * (length - 1), bad, bad], name)
    assert (caught.value.index, caught.value.got) == (length - 1, got)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_words_are_not_integers(name, word):
    with pytest.raises(Loss, match=f"{name} has no {word}") as caught:
        cast([1, word], name)
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("int32", 3.5, "not an integer"),
        ("int64", 2.0**53, "a float this large may have been rounded"),
        ("int64", 1e300, "a float this large may have been rounded"),
        ("uint8", 300, "out of range for uint8"),
        ("uint8", 300.0, "out of range for uint8"),
        ("uint64", -1, "out of range for uint64"),
        ("int64", 2**63, "out of range for int64"),
        ("float32", 1e300, "overflows float32"),
        ("float16", 70000, "overflows float16"),
        ("float16", 65520.0, "overflows float16"),
        ("bfloat16", 3.4e38, "overflows bfloat16"),
    ],
)
def test_each_loss_has_its_message(name, value, message):
    for length in (1, 500):
        with pytest.raises(Loss, match=message) as caught:
            cast([*[1] * (length - 1), value], name)
        assert caught.value.index == length - 1
        assert float(caught.value.got) == value


@pytest.mark.parametrize("name", DTYPES)
def test_an_empty_list_is_an_empty_array(name):
    result = casting.cast([], set(), DTYPES[name])
    assert (result.shape, result.dtype) == ((0,), DTYPES[name].numpy)


@pytest.mark.parametrize("length", [0, 1, 500])
def test_bools_are_bools(length):
    values = [i % 3 == 0 for i in range(length)]
    result = cast(values, "bool")
    assert (result.dtype, result.shape) == (np.bool_, (length,))
    assert result.tolist() == values


@pytest.mark.parametrize("length", [1, 500])
@pytest.mark.parametrize(
    ("bad", "got"),
    [
        (0, "0"),
        (1, "1"),
        (1.0, "1.0"),
        (-(2**64), "-18446744073709551616"),
        (None, "null"),
        ("true", 'the string "true"'),
        ("NaN", 'the string "NaN"'),
        ({"a": True}, "an object"),
        ([True], "a list of 1"),
    ],
)
def test_an_invalid_bool_is_refused_at_its_index(length, bad, got):
    with pytest.raises(Loss, match="expected a bool") as caught:
        cast([*[True] * (length - 1), bad, bad], "bool")
    assert (caught.value.index, caught.value.expected, caught.value.got) == (length - 1, "true or false", got)


def test_numbers_from_the_fast_path_are_refused_as_bools():
    numbers = casting.Numbers(np.array([1.0, 0.0]), (2,), memoryview(b"[1,0]"))
    with pytest.raises(Loss, match="expected a bool") as caught:
        casting.cast_numbers(numbers, DTYPES["bool"])
    assert (caught.value.index, caught.value.got) == (0, "1")


@settings(max_examples=200, deadline=None, database=None)
@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=0, min_side=0), elements=st.sampled_from([0, 1, 1, 0, 2, 255])))
def test_only_bytes_0_and_1_are_bools(raw):
    if (raw > 1).any():
        with pytest.raises(Loss, match="invalid bool byte") as caught:
            casting.bools(raw)
        first = int(np.flatnonzero(raw > 1)[0])
        assert (caught.value.index, caught.value.expected, caught.value.got) == (first, "0 or 1", str(raw.flat[first]))
    else:
        result = casting.bools(raw)
        assert (result.dtype, result.shape) == (np.bool_, raw.shape)
        assert result.tolist() == (raw == 1).tolist()
        assert np.shares_memory(result, raw) or not raw.size
