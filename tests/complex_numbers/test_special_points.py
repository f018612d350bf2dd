"""Complex gradients that are wrong on an axis, beside a cut or at equal sizes fail at every seed; right ones pass."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output, custom_gradient
from tests.complex_numbers.pages import REAL
from tests.gradcheck.checking import failed, report

SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 5)))
WIDE = ("complex128",)
Z, W = [[0.75, 0.5], [-1.25, 0.25], [0.5, -1.0]], [[-0.5, 1.25], [0.75, 0.25], [1.5, -0.5]]
conj, real, imag, angle, size = tf.math.conj, tf.math.real, tf.math.imag, tf.math.angle, tf.abs

pytestmark = pytest.mark.slow


def made(function: Callable[..., Any], **fields: Any) -> Op:
    every: dict[str, Any] = {
        "inputs": (Input("z", WIDE),),
        "outputs": (Output("w", WIDE),),
        "examples": (Example("three", {"z": Z}),),
        "batching": "elementwise",
        "reference": None,
    }
    return Op(name="made", summary="", doc=None, source="", function=function, **(every | fields))


def one(where: Callable[..., Any], fault: Callable[..., Any] = lambda dz: 2 * dz, **fields: Any) -> Op:
    """Return z³ with a gradient that is wrong ``where`` a number of z is special."""

    def vjp(z, dw):
        right = 3 * conj(z * z) * dw
        return tf.where(where(z), fault(right), right)

    return made(custom_gradient(lambda z: z * z * z, vjp), **fields)


def root(where: Callable[..., Any], fault: Callable[..., Any] = lambda dz: -dz) -> Op:
    """Return the square root with a gradient that is wrong on a part of the cut."""

    def vjp(z, dw):
        right = conj(0.5 / tf.sqrt(z)) * dw
        return tf.where(where(z), fault(right), right)

    return made(custom_gradient(tf.sqrt, vjp))


def two(where: Callable[..., Any], **fields: Any) -> Op:
    """Return z w² with a gradient in z that is wrong ``where`` numbers of z and w are special together."""

    def vjp(z, w, dy):
        right = conj(w * w) * dy
        return tf.where(where(z, w), 2 * right, right), 2 * conj(z * w) * dy

    slots = {"inputs": (Input("z", WIDE), Input("w", WIDE)), "examples": (Example("three", {"z": Z, "w": W}),)}
    return made(custom_gradient(lambda z, w: z * w * w, vjp), **(slots | fields))


def is_negative_zero(x):
    return (x == 0) & (1 / x < 0)


def real_part(dz):
    return tf.cast(real(dz), dz.dtype)


WRONG = {
    "on the real axis": one(lambda z: imag(z) == 0),
    "on the real axis but for 0, in the imaginary part": one(lambda z: (imag(z) == 0) & (real(z) != 0), real_part),
    "on the imaginary axis": one(lambda z: real(z) == 0),
    "on the positive imaginary axis": one(lambda z: (real(z) == 0) & (imag(z) > 0)),
    "on the real axis between -1 and 0": one(lambda z: (imag(z) == 0) & (real(z) < 0) & (real(z) > -1)),
    "on the real axis beyond 1": one(lambda z: (imag(z) == 0) & (real(z) > 1)),
    "at -0 in the imaginary part": one(lambda z: is_negative_zero(imag(z)) & (real(z) != 0)),
    "at -0 in the real part": one(lambda z: is_negative_zero(real(z)) & (imag(z) != 0)),
    "at +0 in the imaginary part": one(lambda z: (imag(z) == 0) & (1 / imag(z) > 0)),
    "near the real axis": one(lambda z: (size(imag(z)) < 1e-4) & (imag(z) != 0)),
    "below the real axis, near it": one(lambda z: (imag(z) > -0.02) & (imag(z) < 0)),
    "on the unit circle": one(lambda z: size(z) == 1),
    "for all numbers on the real axis": one(lambda z: tf.reduce_all(imag(z) == 0)[None], batching="none"),
    "for all numbers of one size": one(
        lambda z: tf.reduce_all(size(z) == size(z)[0])[None],
        inputs=(Input("z", WIDE, ("N",)),), outputs=(Output("w", WIDE, ("N",)),), batching="none",
    ),
    "where the square root has its cut": root(lambda z: (real(z) < 0) & (imag(z) == 0)),
    "on the upper side of the cut": root(lambda z: (real(z) < 0) & (imag(z) >= 0) & (imag(z) < 1e-4)),
    "on the lower side of the cut": root(lambda z: (real(z) < 0) & (imag(z) < 0) & (imag(z) > -1e-4)),
    "at equal sizes": two(lambda z, w: size(z) == size(w)),
    "at equal arguments": two(lambda z, w: angle(z) == angle(w)),
    "at two real numbers": two(lambda z, w: (imag(z) == 0) & (imag(w) == 0)),
    "at a real second number": two(lambda z, w: imag(w) == 0),
    "at a number and its conjugate": two(lambda z, w: z == conj(w)),
}  # fmt: skip


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", WRONG)
def test_faults_at_special_complex_numbers_are_found(fault: str, seed: int) -> None:
    assert failed(report(WRONG[fault], seed=seed, checks=["derivative"], modes=("graph",))) == ["derivative"]


REAL_OUTPUT = {"outputs": (Output("w", REAL[1:]),)}
RIGHT = {
    "cube": made(lambda z: z**3),
    "square root": made(tf.sqrt),
    "logarithm": made(tf.math.log),
    "power": made(lambda z: tf.pow(z, tf.constant(0.3, z.dtype))),
    "product": two(lambda z, w: size(z) < 0),
    "quotient": made(lambda z: 1 / (z - 1)),
    "absolute value": made(tf.abs, **REAL_OUTPUT),
    "angle": made(tf.math.angle, **REAL_OUTPUT),
    "rectified parts": made(lambda z: tf.complex(tf.nn.relu(real(z)), tf.nn.relu(imag(z)))),
    "rectified size": made(lambda z: tf.cast(tf.nn.relu(size(z) - 1), z.dtype) * tf.math.sign(z)),
    "arc sine": made(lambda z: -1j * tf.math.log(1j * z + tf.sqrt(1 - z * z))),
    "inverse hyperbolic tangent": made(lambda z: 0.5 * (tf.math.log(1 + z) - tf.math.log(1 - z))),
    "tangent": made(tf.tan),
    "logarithm away from its cut": made(tf.math.log, inputs=(Input("z", WIDE, domain=(0.1, 2.0)),),
                                        examples=(Example("one", {"z": [[0.5, 0.5]]}),)),
    "the larger one": made(
        lambda z, w: tf.where(size(z) >= size(w), z, w),
        inputs=(Input("z", WIDE), Input("w", WIDE)), examples=(Example("three", {"z": Z, "w": W}),),
    ),
    "transform": made(tf.signal.fft, inputs=(Input("z", WIDE, ("N",)),), outputs=(Output("w", WIDE, ("N",)),),
                      batching="none"),
}  # fmt: skip


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RIGHT)
def test_right_ops_pass_there(name: str, seed: int) -> None:
    checks = ["derivative", "second", "adjoint", "symmetry"]
    assert failed(report(RIGHT[name], seed=seed, checks=checks, modes=("graph",))) == []
