"""``pullback.gradcheck.check``, and the fixture ``gradients``: reports that are true, or raised."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.errors import BadArgument
from pullback.gradcheck import WrongGradient, check

X = np.array([0.5, -1.25, 2.0])


def cube(x: np.ndarray) -> np.ndarray:
    return x**3


def cube_vjp(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    return 3 * x**2 * dy


def wrong_vjp(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    return 2 * x**2 * dy


def product(a: dict[str, np.ndarray], power: int, *, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return a["w"] ** power * b, b


def wrong_product_vjp(a: dict[str, np.ndarray], power: int, b: np.ndarray, dy: Any) -> tuple[np.ndarray, np.ndarray]:
    return 1.5 * power * a["w"] ** (power - 1) * b * dy[0], a["w"] ** power * dy[0] + dy[1]


def energy(x: np.ndarray) -> float:
    return float(np.sum(x**4) / 4)


def wrong_energy_grad(x: np.ndarray) -> np.ndarray:
    return 1.1 * x**3


def loss(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.sum(np.log1p(np.exp(-y * (x @ w)))))


def wrong_loss_grad(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -1.1 * x.T @ (y / (1 + np.exp(y * (x @ w))))


def test_a_right_gradient_returns_a_report_that_is_true(gradients: Callable[..., Any]) -> None:
    power = 3
    found = gradients(lambda x: x**power, X, vjp=lambda x, dy: power * x ** (power - 1) * dy)
    assert found
    assert (found.op, found.verdict, str(found)) == ("numpy+f", "pass", "pass: numpy+f: 12 checks passed")


@pytest.mark.parametrize(
    ("function", "inputs", "vjp", "factor"),
    [
        (cube, X, wrong_vjp, "0.66667"),
        (product, {"a": {"w": X}, "power": 2, "b": X + 1}, wrong_product_vjp, "1.5"),
        (energy, X, wrong_energy_grad, "1.1"),
        (loss, (X, np.sin(np.outer(X, X)), np.array([1, -1, 1])), wrong_loss_grad, "1.1"),
    ],
)
def test_a_wrong_gradient_raises_a_report_with_the_python_that_shows_it(
    function: Callable[..., Any], inputs: Any, vjp: Callable[..., Any], factor: str
) -> None:
    with pytest.raises(AssertionError, match=f"all are {factor} times what they should be") as raised:
        check(function, inputs, vjp=vjp)
    assert isinstance(raised.value, WrongGradient)
    assert not raised.value.report
    [worst] = [each for each in raised.value.report.checks if each.verdict == "fail"]
    assert f"numeric {worst.worst.numeric:.9g} ± {worst.worst.error_bar:.2g}" in str(raised.value)
    setup, expression = worst.reproduce.split("; ")
    names = {**globals()}
    exec(setup, names)
    assert eval(expression, names)[worst.worst.index] == worst.worst.analytic


def test_without_raising_the_report_is_false() -> None:
    found = check(cube, X, vjp=wrong_vjp, checks=["derivative"], raises=False)
    assert not found
    assert [each.check for each in found.checks] == ["contract", "derivative"]


def test_what_is_inconclusive_fails_unless_it_counts_as_pass() -> None:
    def lost(x: np.ndarray) -> np.ndarray:
        return (x + 2.0**46) - 2.0**46

    arguments = {"vjp": lambda x, dy: dy, "checks": ["derivative"]}
    with pytest.raises(WrongGradient, match="inconclusive"):
        check(lost, X, **arguments)
    assert not check(lost, X, **arguments, inconclusive="pass")


def test_domains_and_dtypes_are_those_of_the_command() -> None:
    found = check(np.log, (X**2,), vjp=lambda x, dy: dy / x, domains={"x": (0, np.inf)}, dtypes=["float32"])
    assert "float32" in {each.dtype for each in found.checks}


def product(a, b):
    return a * b


def product_vjp(a, b, dy):
    return b * dy, a * dy


@pytest.mark.parametrize(
    ("function", "inputs", "options", "words"),
    [
        (cube, X, {}, "expected vjp=, the gradient of a function of NumPy"),
        (cube, X, {"vjp": cube_vjp, "kind": "torch"}, "expected no vjp= for kind='torch'"),
        (cube, X, {"kind": "torch"}, "No module named 'torch'"),
        (3, X, {"vjp": cube_vjp}, "expected a function or a module's instance, got int"),
        (cube, (X, X), {"vjp": cube_vjp}, "expected at most 1 arguments, got 2"),
        (product, [X, X], {"vjp": product_vjp}, "expected arguments for a, b, got a list, which is one: write (a, b)"),
        (cube, (), {"vjp": cube_vjp}, "expected an argument with floats"),
        (cube, X, {"vjp": cube_vjp, "checks": ["second"]}, "expected a function for which one of the checks second"),
        (cube, X, {"vjp": cube_vjp, "checks": ["nearby"]}, "--check: expected some of derivative"),
    ],
)
def test_what_cannot_be_checked_says_what_is_missing(
    function: Any, inputs: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadArgument, match=re.escape(words)):
        check(function, inputs, **options)
