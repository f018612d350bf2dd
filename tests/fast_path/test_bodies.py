"""Bodies are taken apart in linear time, and put together again; only tensors of numbers are read."""

import json
from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tensors.skeletons import HOLE, LONG_RUN, may_be_shape, read_lists, shape_of, split

# If any of these took quadratic time, the test would not end.
HUGE = 1 << 23
LONG = ",".join(["1.5"] * LONG_RUN)


def join(skeleton: bytes, texts: Sequence[bytes | bytearray]) -> bytes:
    """Return the body with these texts in its holes."""
    first, *rest = skeleton.split(HOLE)
    return first + b"".join(chain.from_iterable(zip(texts, rest, strict=True)))


@pytest.mark.parametrize(
    "body",
    [
        b"[" * HUGE,
        b"]" * HUGE,
        b"[" * HUGE + b"]" * HUGE,
        b"[1.5]," * HUGE,
        b'["' * HUGE,
        b'["a"],' * HUGE,
        pytest.param(b"[[1.5,2.5]," * HUGE, marks=pytest.mark.slow),
        b"[" + b"1.5," * HUGE + b"2.5]",
        pytest.param(b"[" + b"[1.5,2.5]," * HUGE + b"[1.5,2.5]]", marks=pytest.mark.slow),
        b"[" + b", " * HUGE,
        b'{"x":[1.5' + b" " * HUGE,
    ],
    ids=lambda body: repr(body[:12]),
)
def test_any_body_takes_linear_time(body: bytes):
    parts = split(body)
    if parts is not None:
        assert join(*parts) == body
        if parts[1]:
            read_lists(parts[1])


@settings(max_examples=400, deadline=None, database=None)
@given(st.text("[[]],,1 .-", max_size=12).map(lambda text: f"[{text}]".encode()))
def test_a_run_that_is_a_tensor_has_the_shape_of_its_brackets_and_commas(text: bytes):
    parts = split(text)
    assert parts is not None
    found = read_lists(parts[1]) if parts[1] == [text] else None
    assert found is None or found[1] == (shape_of(text),)


JSON = st.recursive(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=4) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


@settings(max_examples=400, deadline=None, database=None)
@given(JSON.map(json.dumps) | st.text('[]{},:"1.5e- \\n', max_size=40))
def test_a_body_can_be_put_together_again(text: str):
    body = text.encode()
    parts = split(body)
    assert parts is not None
    assert join(*parts) == body


@pytest.mark.parametrize("shape", [(3,), (1,), (2, 3), (3, 1), (1, 1, 1), (2, 2, 2), (700, 2), (2, 1500), (4000,)])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " :\t")])
def test_a_tensor(shape: tuple[int, ...], separators: tuple[str, str]):
    x = np.random.default_rng(1).uniform(-3, 3, shape)
    body = json.dumps({"inputs": {"x": x.tolist(), "z": [0.5]}, "shape": [3]}, separators=separators).encode()
    parts = split(body)
    assert parts is not None
    found = read_lists(parts[1])
    assert found is not None
    assert found[1] == tuple(map(shape_of, parts[1])) == (shape, (1,), (1,))
    assert np.array_equal(found[0], [*x.reshape(-1), 0.5, 3])
    assert [may_be_shape(text) for text in parts[1]] == [False, False, True]


@pytest.mark.parametrize(
    "text",
    [
        *("[1.5", "[1.5]]", "[1.5],[2.5]", "[1.5][2.5]", "[[1.5]", "[1.5,]", "[,1.5]", "[1.5,,2.5]", "[[1.5],2.5]"),
        *(
            "[[1.5],[2.5,3.5]]",
            "[[1.5],[[2.5]]]",
            "[[1.5,]2.5]",
            "[[1.5]2.5,3.5]",
            "[1.5 2.5]",
            "[[],[1.5]]",
            "[[1.5],[]]",
        ),
        *("[01]", "[1.]", "[+1]", "[.5]", "[1e]", "[--1]", "[1e999]", "[-]", "[1.5,true]", "[null]"),
    ],
)
@pytest.mark.parametrize("more", ["", LONG])
def test_what_is_no_tensor(text: str, more: str):
    """Long texts have another reader."""
    assert read_lists([text.encode(), f"[{more or 2.5}]".encode()]) is None
    assert read_lists([text.replace("1.5", f"1.5,{more}" if more else "1.5", 1).encode()]) is None
