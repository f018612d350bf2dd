"""The NumPy functions of an author get float64 for every float dtype, integers and bools as they are."""

from collections import defaultdict

import numpy as np
import pytest
import tensorflow as tf

from ops import FLOATS, Claim, Example, Formula, Input, Op, Output, Surrogate, custom_gradient
from tests.gradcheck.checking import entries, failed, report
from tests.gradcheck.op_makers import made as cubed

SEEN = {"x": "float64", "count": "int32", "keep": "bool"}


def scaled(x, count, keep):
    """x count where keep, else x, by a function of NumPy that refuses bfloat16."""
    return np.einsum("...,...->...", x, np.where(keep, count, 1))


def made(dtypes, seen, claims):
    """Return an op whose functions note the dtypes of their arguments by their own names."""

    def note(function, *arguments):
        for name, x in zip(SEEN, arguments, strict=False):
            seen[function, name].add(str(x.dtype))

    def reference(*xs):
        note("reference", *xs)
        return scaled(*xs)

    def surrogate(primals, at):
        note("surrogate", *primals)
        note("at", *at)
        return (scaled(*primals),)

    def formula(primals, cotangents):
        note("formula", *primals)
        note("cotangents", *cotangents)
        (_, count, keep), (dy,) = primals, cotangents
        return scaled(dy, count, keep), None, None

    def second(primals, cotangents, ddx):
        note("second", *primals)
        note("ddx", *ddx)
        return 0 * ddx[0], None, None

    def singular(inputs, attrs):
        note("singular", *inputs.values())
        return False

    by_name = {"surrogate": Claim(Surrogate(surrogate)), "formula": Claim(Formula(formula), Formula(second))}
    return Op(
        name="noting",
        summary="x count where keep, else x",
        doc=None,
        function=custom_gradient(
            lambda x, count, keep: tf.where(keep, x * tf.cast(count, x.dtype), x),
            lambda x, count, keep, dy: (tf.where(keep, dy * tf.cast(count, x.dtype), dy), None, None),
        ),
        reference=reference,
        inputs=(
            Input("x", dtypes),
            Input("count", ("int32",), differentiable=False),
            Input("keep", ("bool",), differentiable=False),
        ),
        outputs=(Output("y", dtypes),),
        mechanism="custom_gradient",
        source="a test",
        batching="elementwise",
        claim=lambda attrs: by_name[claims],
        singular=singular,
        examples=(Example("two", {"x": [1.0, -0.5], "count": [2, 3], "keep": [True, False]}),),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtypes", "claims"),
    [
        (FLOATS, "surrogate"),
        (FLOATS, "formula"),
        (("bfloat16",), "surrogate"),
        (("float16", "bfloat16"), "formula"),
    ],
    ids=str,
)
def test_no_narrow_array_reaches_a_function_of_the_author(dtypes, claims) -> None:
    functions = ("reference", "singular", *{"surrogate": ("surrogate", "at"), "formula": ("formula", "second")}[claims])
    seen = defaultdict(set)
    found = report(made(dtypes, seen, claims), modes=("graph",))
    assert found["verdict"] == "pass", [entry["sentence"] for entry in found["checks"]]
    assert {(function, name): {dtype} for function in functions for name, dtype in SEEN.items()} == {
        key: dtypes for key, dtypes in seen.items() if key[0] in functions
    }
    if claims == "formula":
        assert seen["cotangents", "x"] == seen["ddx", "x"] == {"float64"}


def test_a_reference_that_raises_is_blamed_in_the_dtype_in_which_it_raises() -> None:
    """Only numbers that are rounded to bfloat16 have so few digits."""

    def reference(x):
        if np.all(x.astype(np.float32).view(np.uint32) & 0xFFFF == 0):
            raise FloatingPointError("too few digits")
        return x**3

    found = report(cubed(reference=reference, dtypes=("float32", "bfloat16"), claim=lambda attrs: Claim()))
    [failure] = entries(found, "value")
    assert (failure["dtype"], [entry["dtype"] for entry in entries(found, "value", "pass")]) == (
        "bfloat16",
        ["float32"],
    )
    assert "reference raised FloatingPointError: too few digits (gradcheck/test_reference.py:" in failure["sentence"]


@pytest.mark.parametrize(
    ("singular", "got"),
    [
        (lambda inputs, attrs: inputs["x"] == 0, "got bool of shape [260]"),
        (lambda inputs, attrs: np.sum(inputs["x"]), "got float64 of shape []"),
        (lambda inputs, attrs: None, "got object of shape []"),
    ],
)
def test_singular_is_one_bool(singular, got) -> None:
    document = report(cubed(singular=singular), checks=["derivative"])
    (entry,) = entries(document, "contract")
    assert "expected True or False for the whole point" in entry["sentence"]
    assert got in entry["sentence"]
    assert failed(document) == ["contract"]


def test_singular_may_be_a_bool_of_numpy() -> None:
    assert (
        report(cubed(singular=lambda inputs, attrs: np.any(inputs["x"] == 9)), checks=["derivative"])["verdict"]
        == "pass"
    )
