"""Checks of complex ops: right ones pass, and planted faults are found."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pullback.ops import (
    Claim,
    Example,
    Formula,
    Input,
    Op,
    Output,
    Parameter,
    Surrogate,
    custom_gradient,
    pages_of,
    register,
)
from tests.complex_numbers.pages import COMPLEX as BOTH
from tests.complex_numbers.pages import REAL, ROWS
from tests.gradcheck.checking import entries, failed, report

SOME = ["contract", "value", "derivative", "second", "linearity", "adjoint", "modes", "dtypes"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ops(pages) -> Mapping[str, Op]:
    return register(pages_of([pages])).ops


def op(function: Callable[..., Any], **fields: Any) -> Op:
    every: dict[str, Any] = {
        "inputs": (Input("z", BOTH),),
        "outputs": (Output("w", BOTH),),
        "examples": (Example("two", {"z": [[1, 2], [0.5, -1]]}),),
        "batching": "elementwise",
        "reference": lambda z: z**2,
    }
    return Op(name="made", summary="", doc=None, source="", function=function, **{**every, **fields})


def with_vjp(vjp: Callable[..., Any], vjp_vjp: Callable[..., Any] | None = None) -> Callable[..., Any]:
    return custom_gradient(lambda z: z * z, vjp, vjp_vjp)


@pytest.mark.share(14)
@pytest.mark.parametrize("name", ROWS)
def test_right_ops_pass(ops, name) -> None:
    document = report(ops[name], checks=SOME)
    assert document["verdict"] == "pass", entries(document, "derivative") or document["sentence"]
    assert {entry["dtype"] for entry in document["checks"]} <= {*BOTH, *REAL}


def conj(z: tf.Tensor) -> tf.Tensor:
    return tf.math.conj(z)


def swapped(z: tf.Tensor) -> tf.Tensor:
    return tf.complex(tf.math.imag(z), tf.math.real(z))


FIRST = {
    "no conjugate": lambda z, dw: 2 * z * dw,
    "the conjugate of all": lambda z, dw: conj(2 * conj(z) * dw),
    "a factor of 2": lambda z, dw: 4 * conj(z) * dw,
    "swapped parts": lambda z, dw: swapped(2 * conj(z) * dw),
    "the sign of the imaginary part of dw": lambda z, dw: 2 * conj(z) * conj(dw),
    "the real part alone": lambda z, dw: tf.cast(tf.math.real(2 * conj(z) * dw), z.dtype),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("fault", FIRST)
def test_first_order_faults_are_found(fault) -> None:
    document = report(op(with_vjp(FIRST[fault])), checks=["derivative"], orders=(1,))
    assert failed(document) == ["derivative"]


SECOND = {
    "no conjugate of ddz": lambda z, dw, ddz: (2 * dw * ddz, 2 * z * ddz),
    "no conjugate in the slot of dw": lambda z, dw, ddz: (2 * dw * conj(ddz), 2 * conj(z) * ddz),
    "a factor of 2": lambda z, dw, ddz: (4 * dw * conj(ddz), 2 * z * ddz),
    "no dw": lambda z, dw, ddz: (2 * conj(ddz), 2 * z * ddz),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("fault", SECOND)
def test_second_order_faults_are_found(fault) -> None:
    function = with_vjp(lambda z, dw: 2 * conj(z) * dw, SECOND[fault])
    document = report(op(function), checks=["derivative", "second"])
    assert failed(document) == ["second"]


def test_other_faults_are_found() -> None:
    assert failed(report(op(tf.square, reference=lambda z: np.conj(z) ** 2), checks=["value"])) == ["value"]
    real = custom_gradient(lambda z: tf.math.real(z * conj(z)), lambda z, dy: z * tf.cast(dy, z.dtype))
    size = op(real, outputs=(Output("w", REAL),), reference=lambda z: np.abs(z) ** 2)
    assert failed(report(size, checks=["value", "derivative"])) == ["derivative"]  # it is 2 z dy
    number = custom_gradient(lambda z: tf.cast(z, tf.complex64 if z.dtype == tf.float32 else tf.complex128) * 1j,
                             lambda z, dw: -tf.math.imag(dw))  # fmt: skip
    made = op(number, inputs=(Input("z", REAL),), examples=(Example("two", {"z": [1, 2]}),), reference=lambda z: 1j * z)
    assert failed(report(made, checks=["value", "derivative"])) == ["derivative"]


def test_imaginary_parts_are_never_dropped() -> None:
    fields = {"outputs": (Output("w", REAL),), "reference": lambda z: z}
    document = report(op(tf.math.real, **fields), checks=["value"])
    assert "complex" in entries(document, "value")[0]["sentence"]
    real = {"inputs": (Input("z", REAL),), "examples": (Example("e", {"z": [1, 2]}),), "reference": lambda z: z + 1j}
    document = report(op(tf.identity, **fields | real), checks=["value"])
    assert "complex" in entries(document, "value")[0]["sentence"]


def test_wrong_kernels_of_xla_are_refused() -> None:
    sqrt = op(tf.sqrt, inputs=(Input("z", BOTH, domain=(0.5, 3)),), examples=(Example("e", {"z": [[1, 2]]}),))
    (entry,) = entries(report(sqrt, checks=["modes"]), "modes")
    assert "XLA's kernel SqrtGrad is wrong for complex numbers" in entry["sentence"]


def test_wrong_gradients_of_tensorflow_are_named() -> None:
    document = report(op(lambda z: tf.math.multiply_no_nan(z, z)))
    assert failed(document) == ["contract"]
    assert "the gradient of MulNoNan in TensorFlow" in entries(document, "contract")[0]["sentence"]


def test_holomorphic_is_a_claim_that_is_checked() -> None:
    wrong = report(op(tf.math.conj, reference=np.conj, holomorphic=True), checks=["linearity", "derivative"])
    assert failed(wrong) == ["linearity"]
    assert "holomorphic" in entries(wrong, "linearity")[0]["sentence"]
    assert "complex" in entries(wrong, "linearity")[0]["reproduce"]
    assert failed(report(op(tf.square, holomorphic=True), checks=["linearity"])) == []


def test_claims_of_pages_are_complex() -> None:
    """A straight-through conj claims the identity; a Formula is its own gradient."""
    through = custom_gradient(tf.math.conj, lambda z, dw: dw)
    claimed = {"reference": np.conj, "claim": lambda attrs: Claim(Surrogate(of=lambda xs, at: xs[0]))}
    assert report(op(through, **claimed), checks=["value", "derivative", "second"])["verdict"] == "pass"
    formula = Formula(vjp=lambda xs, dys: 3j * dys[0])
    turned = custom_gradient(tf.identity, lambda z, dw: 3j * dw)
    made = op(turned, reference=lambda z: z, claim=lambda attrs: Claim(formula))
    assert report(made, checks=["derivative"])["verdict"] == "pass"
    wrong = Formula(vjp=lambda xs, dys: -3j * dys[0])
    other = op(turned, reference=lambda z: z, claim=lambda attrs: Claim(wrong))
    assert failed(report(other, checks=["derivative"])) == ["derivative"]


def test_ops_are_functions_of_complex_tensors() -> None:
    made = op(tf.square)
    np.testing.assert_allclose(made([1 + 2j]).numpy(), [-3 + 4j])
    assert made([1 + 2j], dtype="complex128").dtype == tf.complex128
    z = tf.constant([1 + 2j])
    with tf.GradientTape() as tape:
        tape.watch(z)
        w = made(z)
    np.testing.assert_allclose(tape.gradient(w, z).numpy(), [2 - 4j])
    assert "z[...] -> w[...]" in repr(made)


def test_declarations_that_contradict_themselves() -> None:
    with pytest.raises(ValueError, match="beside complex64"):
        Input("z", ("complex64", "float32"))
    with pytest.raises(ValueError, match="'float32', 'float64'"):
        op(tf.square, inputs=(Input("z", BOTH), Input("a")), examples=(Example("e", {"z": [[1, 2]], "a": [1]}),))
    with pytest.raises(ValueError, match="holomorphic"):
        op(tf.math.real, outputs=(Output("w", REAL),), holomorphic=True)
    with pytest.raises(ValueError, match=r"pair \[re, im\]"):
        Example("e", {"z": [1j]})


def test_parameters_beside_complex_numbers_are_real() -> None:
    weights = Parameter("a", np.array([0.5, 2], np.float32))
    fields = {"parameters": (weights,), "reference": lambda z, a: a * z, "batching": "none"}
    shapes = {"inputs": (Input("z", BOTH, (2,)),), "outputs": (Output("w", BOTH, (2,)),)}
    made = op(lambda z, a: z * tf.cast(a, z.dtype), **fields, **shapes)
    assert report(made, checks=["value", "derivative", "second"])["verdict"] == "pass"
    with pytest.raises(ValueError, match="the real and the imaginary part as two parameters"):
        Parameter("a", np.array([1j]))
