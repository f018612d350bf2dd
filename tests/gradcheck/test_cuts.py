"""Complex functions with a cut: gradients at its numbers, which belong to one side, are compared on that side."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from ops import Example, Input, Op, Output
from tests.gradcheck.checking import failed, report
from tests.gradcheck.op_makers import elementwise

COMPLEX = ("complex128",)
Function = Callable[[Any], Any]


def sqrt_slope(z: Any) -> Any:
    return 0.5 / tf.sqrt(z)


def power(z: Any) -> Any:
    return tf.exp(0.3 * tf.math.log(z))


def power_slope(z: Any) -> Any:
    return 0.3 * power(z) / z


FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "sqrt": (tf.sqrt, sqrt_slope),
    "log": (tf.math.log, lambda z: 1 / z),
    "power": (power, power_slope),
}


def below(z: Any) -> Any:
    """Return where z is on the negative axis, with -0."""
    return (tf.math.real(z) < 0) & (tf.math.imag(z) == 0) & (1 / tf.math.imag(z) < 0)


def above(z: Any) -> Any:
    return (tf.math.real(z) < 0) & (tf.math.imag(z) == 0) & (1 / tf.math.imag(z) > 0)


def nowhere(z: Any) -> Any:
    return tf.zeros(tf.shape(z), tf.bool)


def turned(dz: Any) -> Any:
    return -dz


def wrong_across(dz: Any) -> Any:
    """Return a gradient that is right along the axis alone."""
    return tf.complex(tf.math.real(dz), 0.9 * tf.math.imag(dz))


def planted(name: str, where: Function, wrong: Function) -> Op:
    """Return the op of a function whose gradient is wrong at some numbers of its cut."""
    function, slope = FUNCTIONS[name]

    @tf.custom_gradient
    def with_gradient(z: Any) -> Any:
        def vjp(dw: Any) -> Any:
            dz = tf.math.conj(slope(z)) * dw
            return tf.where(where(z), wrong(dz), dz)

        return function(z), vjp

    return elementwise(
        with_gradient,
        inputs=(Input("z", COMPLEX),),
        outputs=(Output("w", COMPLEX),),
        examples=(Example("three", {"z": [[0.75, 0.5], [-1.25, 0.25], [0.5, -1.0]]}),),
    )


@pytest.mark.slow
@pytest.mark.share(5)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_right_gradient_passes(name: str, seed: int) -> None:
    assert not failed(report(planted(name, nowhere, turned), seed=seed, checks=("derivative", "second")))


@pytest.mark.slow
@pytest.mark.share(20)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wrong", [turned, wrong_across])
@pytest.mark.parametrize("where", [below, above])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_that_is_wrong_at_its_cut_fails(name: str, where: Function, wrong: Function, seed: int) -> None:
    assert "derivative" in failed(report(planted(name, where, wrong), seed=seed, checks=("derivative",)))
