"""The shapes of nested lists are those that NumPy finds, and everything else is refused."""

import json
import random
from typing import Any

import numpy as np
import pytest

from app.tensors.casting import PART
from app.tensors.runs import lengths_of, read_run, regular_shape

SHAPES = [(1,), (5,), (1, 1), (3, 1), (1, 3), (2, 3), (2, 3, 4), (1,) * 8, (4, 1, 2), (2, 1, 1, 3), (300, 2)]


def brackets_of(text: bytes) -> bytes:
    """Return the brackets and commas of the JSON text of nested lists of numbers."""
    return text.translate(None, b"0123456789+-.eE \t\r\n")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("indent", [None, 1])
def test_the_shape_of_a_tensor(shape: tuple[int, ...], indent: int | None):
    text = json.dumps(np.full(shape, -1.5e-7).tolist(), indent=indent).encode()
    assert regular_shape(brackets_of(text), int(np.prod(shape))) == shape


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape that NumPy finds, ``None`` for ragged and for empty lists."""
    try:
        array = np.array(value, float)
    except ValueError:
        return None
    return array.shape if array.size else None


def test_lists_of_any_lengths_and_levels():
    rng = random.Random(0)

    def level(depth: int) -> Any:
        if not depth:
            return 1.5
        return [level(rng.choice([depth - 1] * 6 + [max(0, depth - 2)])) for _ in range(rng.choice([0, 1, 2, 2, 2, 3]))]

    tensors = 0
    for _ in range(20_000):
        value = level(rng.randrange(1, 4))
        text = json.dumps(value).encode()
        try:
            shape = regular_shape(brackets_of(text), text.count(b"1.5"))
        except ValueError:
            shape = None
        assert shape == shape_of(value), value
        tensors += shape is not None
    assert tensors > 1_000


@pytest.mark.parametrize("brackets", [b"", b"]", b"[", b"[[", b"[]]", b"]]]]", b",", b"[[[", b"[" * 9 + b"]" * 9])
def test_what_is_no_tensor(brackets: bytes):
    with pytest.raises(ValueError, match="expected"):
        regular_shape(brackets, 1)


def test_the_lengths_of_lists():
    for lengths in ([1], [3], [1, 1], [2, 5, 1], [7] * 9):
        text = json.dumps([[0.5] * length for length in lengths]).encode()
        assert lengths_of(brackets_of(text), sum(lengths)) == lengths
    for value in ([[], [1, 2]], [[1], 2], [1, 2], [[[1]]], [[1], [[2]]], []):
        text = json.dumps(value).encode()
        with pytest.raises(ValueError, match="expected"):
            lengths_of(brackets_of(text), sum(character.isdigit() for character in text.decode()))


@pytest.mark.parametrize("count", [1, 3, 1000, PART // 5, PART])
def test_a_run_in_any_number_of_parts(count: int):
    numbers = [-0.25, 1e3, 7.0] * count
    text = json.dumps(numbers).encode()
    body = b'{"x": %b}' % text
    run = read_run(body, 6, 6 + len(text))
    assert run.shape == (3 * count,)
    assert run.values.tolist() == numbers
    nested = json.dumps([numbers[:2], numbers[:2]] * count).encode()
    assert read_run(nested, 0, len(nested)).shape == (2 * count, 2)


@pytest.mark.parametrize("count", [1, PART])
@pytest.mark.parametrize(
    "text", [b"[%b23", b"[%b2]3]", b"[%b]", b"[[%b23]", b"[%b2[3]]", b"[[%b2[,]3]]", b"[%b{}]", b"[%b]]"]
)
def test_a_run_that_is_no_list_of_numbers(count: int, text: bytes):
    run = text % (b"1," * count)
    with pytest.raises(ValueError):  # noqa: PT011 - from any of the parsers
        read_run(run, 0, len(run)).tensor()
