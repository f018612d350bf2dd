"""Sizes: what is drawn, that faults at some sizes are found, and that right ops of any size raise no alarm."""

import numpy as np
import pytest
import tensorflow as tf
from pydantic import Field

from app.autodiff.draws import shape_of
from app.gradcheck import sizes, sweep
from app.gradcheck.options import Options
from app.gradcheck.target import Target
from app.tensors.json import decode
from ops import Attrs, Example, Input, InvalidInput, Op, Output, discover
from tests.gradcheck.checking import CPU, entries, failed, report
from tests.gradcheck.hard import HARD
from tests.gradcheck.op_makers import WIDE, rows
from tests.gradcheck.wrong.sizes import OPS

pytestmark = pytest.mark.slow


@pytest.mark.share(6)
@pytest.mark.parametrize("name", OPS)
def test_a_fault_at_some_sizes_is_found(name: str) -> None:
    document = report(OPS[name].op, checks=OPS[name].checks, modes=("graph", "eager"))
    assert {*OPS[name].checks} <= {*failed(document)}, document["sentence"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["largest_two", "soft_axes", "valid_windows"])
def test_a_right_op_raises_no_alarm_at_any_size(name: str) -> None:
    document = report(HARD[name].op, checks=["sizes"])
    assert not failed(document), document["sentence"]
    assert {entry["order"] for entry in entries(document, "sizes", "pass")} == {0, 1, 2}


def of_shapes(*shapes: tuple[str | int, ...], **changes) -> Op:
    """Return an op of inputs of these shapes."""
    inputs = tuple(Input(name, WIDE, shape) for name, shape in zip("xwz", shapes, strict=False))
    examples = (Example("one", {slot.name: np.zeros(shape_of(slot, {})).tolist() for slot in inputs}),)
    fields = {"inputs": inputs, "outputs": (Output("y", WIDE, shapes[0]),), "examples": examples}
    return rows(changes.pop("function", lambda *xs: xs[0] * xs[0]), **(fields | changes))


def drawn(op: Op, seed: int = 0) -> list[dict[str, tuple[int, ...]]]:
    found = sizes.dimensions(op, op.attrs(), np.random.default_rng(seed))
    return [{slot.name: shape_of(slot, dimensions) for slot in op.inputs} for dimensions in found]


@pytest.mark.parametrize("seed", range(3))
def test_every_symbol_takes_every_size(seed: int) -> None:
    shapes = drawn(of_shapes(("N", "M"), ("M", "K")), seed)
    for name, axis in (("x", 0), ("x", 1), ("w", 1)):
        assert {0, *sizes.SIZES} <= {shape[name][axis] for shape in shapes}
    assert all(shape["x"][1] == shape["w"][0] for shape in shapes)
    assert all(sum(int(np.prod(s)) for s in shape.values()) <= sizes.MOST_NUMBERS for shape in shapes)
    assert shapes != drawn(of_shapes(("N", "M"), ("M", "K")), seed + 1)


def test_many_symbols_are_large_one_after_the_other() -> None:
    shapes = drawn(of_shapes(("N", "H", "W", "C")))
    assert len(shapes) <= sizes.MOST_POINTS
    for axis in range(4):
        assert max(shape["x"][axis] for shape in shapes) >= 33


def test_any_axes_are_none_one_and_three_uneven_ones() -> None:
    shapes = {shape["x"] for shape in drawn(of_shapes(("...",)))}
    assert {(), (1,), (64,), (65,), (0,), (2, 3, 5)} <= shapes


class Width(Attrs):
    """A size that is an attribute."""

    width: int = Field(default=2, ge=1, le=3)


def test_a_size_that_is_an_attribute_keeps_its_value() -> None:
    shapes = drawn(of_shapes(("N", "width"), attrs=Width, function=lambda x, width: width * x))
    assert {shape["x"][1] for shape in shapes} == {2}
    assert {shape["x"][0] for shape in shapes} >= set(sizes.SIZES)


def sized(op: Op) -> list[sizes.Sized]:
    return list(sizes.points(Target(op, {}, Options(CPU), decode)))


@pytest.mark.parametrize("domain", [(-5.0, -1.0), (0.5, 2.0), (-3.0, 1.0)])
def test_rows_that_are_arranged_stay_in_their_domain(domain: tuple[float, float]) -> None:
    inputs = (Input("x", WIDE, ("N", "M"), domain=domain),)
    example = Example("one", {"x": [[domain[0], domain[1]]]})
    op = rows(lambda x: x * x, inputs=inputs, outputs=(Output("y", WIDE, ("N", "M")),), examples=(example,))
    found = sized(op)
    arranged = [each.point.inputs["x"] for each in found if "ascending" in each.sizes]
    assert arranged
    assert all((np.diff(x, axis=-1) >= 0).all() for x in arranged)
    every = np.concatenate([each.point.inputs["x"].ravel() for each in found])
    assert every.min() >= domain[0]
    assert every.max() <= domain[1]


def test_sizes_that_the_op_refuses_are_left_out() -> None:
    def validate(inputs, attrs: Attrs) -> None:
        if len(inputs["x"]) != len(inputs["w"]):
            raise InvalidInput("w", "the lengths differ", expected="that of x", got="another")

    found = sized(of_shapes(("N",), ("M",), validate=validate))
    assert {"N = 64, M = 64", "N = 1, M = 1"} <= {point.sizes for point in found}


def test_an_expensive_size_is_left_out() -> None:
    found = sized(of_shapes(("N",), cost=lambda dims: dims["N"] ** 4))
    assert 33 in {point.point.dims["N"] for point in found}
    assert 64 not in {point.point.dims["N"] for point in found}


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (of_shapes((3,)), "all sizes are fixed"),
        (
            of_shapes(("N",), sample=lambda rng, dtype, attrs: {"x": rng.uniform(size=4)}),
            "its own sample draws points of one size",
        ),
    ],
    ids=["fixed", "sample"],
)
def test_an_op_of_one_size_is_said_to_be_one(op: Op, words: str) -> None:
    [entry] = entries(report(op, checks=["sizes"]), "sizes", "skipped")
    assert words in entry["sentence"]


def test_given_inputs_have_their_sizes() -> None:
    document = report(of_shapes(("N",)), inputs={"x": [1.0, 2.0]}, checks=["sizes"])
    [entry] = entries(document, "sizes", "skipped")
    assert "the inputs are given" in entry["sentence"]


def test_a_gradient_of_tensorflow_that_fails_without_numbers_is_a_note() -> None:
    op = of_shapes(("N",), function=lambda x: tf.reduce_sum(tf.sort(x)[:2]), outputs=(Output("y", WIDE, ()),))
    document = report(op, checks=["sizes"])
    assert not failed(document)
    [entry] = entries(document, "sizes", "skipped")
    assert entry["sentence"].startswith("at N = 0: ")
    assert "refuse the size in validate" in entry["sentence"]


def test_the_smallest_size_that_fails_is_reported() -> None:
    op = OPS["a scan that is wrong from seven numbers on"].op
    [entry] = entries(report(op, checks=["sizes"], modes=("graph",)), "sizes")
    assert entry["sentence"].startswith(("at N = 7: dx", "at N = 8: dx", "at N = 9: dx"))
    assert entry["order"] == 1


def test_labels_that_differ_from_point_to_point_do_not_make_it_look_wrong() -> None:
    """A quick look moves each point with its own integers."""
    target = Target(discover().ops["softmax_cross_entropy"], {}, Options(CPU), decode)
    assert sweep.suspects(target, 1) == []
    assert sweep.suspects(target, 2) == []


@pytest.mark.slow
def test_a_long_axis_is_looked_at_unless_the_op_loops() -> None:
    summed = report(HARD["trapezoids"].op, checks=["sizes"], modes=("graph",))
    assert "N = 4097" in entries(summed, "sizes", "pass")[0]["sentence"]
    looped = report(HARD["recursive_filter"].op, checks=["sizes"], modes=("graph",))
    *_, longest = entries(looped, "sizes", "pass")[0]["sentence"].split()
    assert 129 <= int(longest) <= 513
