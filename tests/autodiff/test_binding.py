"""Binding of shapes: a symbol stands for one size everywhere, and ``...`` for one run of sizes."""

import re
from typing import Any

import pytest

from app.autodiff.binding import bind
from app.autodiff.symbolic_shapes import resolved_shape
from app.errors import Unprocessable
from app.tensors.json import decode
from ops import Attrs, Example, Input, Op, Output


def first(*tensors: Any, **attrs: Any) -> Any:
    del attrs
    return tensors[0]


def dims(shapes: dict[str, Any], inputs: dict[str, Any], attrs: type[Attrs] = Attrs) -> Any:
    op = Op(
        name="shaped",
        summary="an op for a test",
        doc="y = a",
        function=first,
        reference=first,
        inputs=tuple(Input(name, shape=shape) for name, shape in shapes.items()),
        outputs=(Output("y", shape=next(iter(shapes.values()))),),
        attrs=attrs,
        mechanism="custom_gradient",
        source="a test",
        examples=(Example("one", inputs),),
    )
    return bind(op, inputs, {}, None, decode, mode="graph", device="/device:CPU:0", max_elements=1).dims


MATRIX, CUBE = [[1, 2, 3], [4, 5, 6]], [[[1, 2]], [[3, 4]]]


@pytest.mark.parametrize(
    ("shapes", "inputs", "expected"),
    [
        ({"a": ("N", "C"), "b": ("C",)}, {"a": MATRIX, "b": [1, 2, 3]}, {"N": 2, "C": 3}),
        ({"a": ("...",), "b": ("...",)}, {"a": MATRIX, "b": MATRIX}, {"...": (2, 3)}),
        ({"a": ("...", "M"), "b": ("...",)}, {"a": MATRIX, "b": [1, 2]}, {"...": (2,), "M": 3}),
        ({"a": ("N", "...", "M")}, {"a": CUBE}, {"N": 2, "...": (1,), "M": 2}),
        ({"a": ("N", "...", "M")}, {"a": MATRIX}, {"N": 2, "...": (), "M": 3}),
        ({"a": ("...",)}, {"a": 1}, {"...": ()}),
        ({"a": (2, "C")}, {"a": MATRIX}, {"C": 3}),
        ({"a": ("N", 0)}, {"a": [[], []]}, {"N": 2}),
    ],
)
def test_matching_shapes_are_bound(shapes, inputs, expected):
    found = dims(shapes, inputs)
    assert found == expected
    assert resolved_shape(shapes["a"], found) == resolved_shape(("...",), dims({"x": ("...",)}, {"x": inputs["a"]}))


@pytest.mark.parametrize(
    ("shapes", "inputs", "fault"),
    [
        ({"a": ("N", "C"), "b": ("C",)}, {"a": MATRIX, "b": [1, 2]}, "inputs.b: shape [2] does not match [C]"),
        ({"a": ("N", "N")}, {"a": MATRIX}, "inputs.a: shape [2, 3] does not match [N, N]"),
        ({"a": ("...",), "b": ("...",)}, {"a": MATRIX, "b": [1, 2]}, "inputs.b: shape [2] does not match [...]"),
        ({"a": ("...", "M"), "b": ("...",)}, {"a": MATRIX, "b": [1]}, "inputs.b: shape [1] does not match [...]"),
        ({"a": ("N", "...", "M")}, {"a": [1]}, "inputs.a: shape [1] does not match [N, ..., M]"),
        ({"a": (3, "C")}, {"a": MATRIX}, "inputs.a: shape [2, 3] does not match [3, C]"),
        ({"a": ("N",)}, {"a": MATRIX}, "inputs.a: shape [2, 3] does not match [N]"),
        ({"a": ("N",)}, {"a": 1}, "inputs.a: shape [] does not match [N]"),
    ],
)
def test_mismatched_shapes_are_refused(shapes, inputs, fault):
    with pytest.raises(Unprocessable, match=re.escape(fault)):
        dims(shapes, inputs)


def test_a_shape_with_an_unbound_symbol_is_unknown():
    assert resolved_shape(("N", "K"), {"N": 2}) is None
