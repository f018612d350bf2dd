"""Right gradients pass and planted wrong ones fail, whatever the budget; the noise of a solver is not blamed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from pullback.dtypes import Array
from pullback.gradcheck.function import Arrays, Point, Slot
from tests.server_checks.models import (
    PRODUCTS,
    QUARTIC,
    FunctionModel,
    check,
    exact_adjoint,
    failed,
    of_scales,
    quartic_hessian,
    refusing_outside,
    solver,
)

pytestmark = pytest.mark.slow

RICH, POOR = (1000, 300, 120), (60, 20, 5)


def planted(**changes: object) -> FunctionModel:
    return replace(PRODUCTS, calls=[], **changes)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("budget", [*RICH, *POOR])
def test_right_gradients_do_not_fail(budget: int, seed: int) -> None:
    document = check(planted(), budget, seed)
    assert not failed(document)
    assert document["verdict"] == "pass" or budget in POOR, document["sentence"]
    assert not failed(check(replace(QUARTIC, calls=[]), budget, seed))


@pytest.mark.parametrize("budget", [*RICH, *POOR])
@pytest.mark.parametrize(
    "spoil", [lambda dx, dy: 1.09 * dx, lambda dx, dy: -dx, lambda dx, dy: 0 * dx], ids=["9 %", "sign", "zero"]
)
def test_a_gradient_that_is_wrong_as_a_whole_fails_at_every_budget(spoil, budget: int) -> None:
    assert "derivative" in failed(check(replace(QUARTIC, spoil_vjp=spoil, calls=[]), budget))


@pytest.mark.parametrize("budget", [*RICH, 60])
@pytest.mark.parametrize(
    "spoil", [lambda dx, dy: dx * np.r_[1.09, np.ones(dx.size - 1)], lambda dx, dy: np.roll(dx, 1)]
)
def test_one_wrong_number_fails(spoil, budget: int) -> None:
    assert "derivative" in failed(check(planted(spoil_vjp=spoil), budget))


def test_a_small_error_is_told_with_its_number_and_its_request() -> None:
    document = check(replace(QUARTIC, spoil_vjp=lambda dx, dy: dx * [1, 1 + 1e-3, 1], calls=[]))
    entry = next(entry for entry in document["checks"] if entry["verdict"] == "fail")
    assert 0 < entry["worst"]["relative"] < 2e-3
    assert entry["reproduce"].startswith("curl -s http://localhost/Gradient ")


@pytest.mark.parametrize(
    ("model", "check_name"),
    [
        (planted(spoil_jvp=lambda ty: 1.001 * ty), "adjoint"),
        (planted(spoil_vjp=lambda dx, dy: np.clip(dx, -0.5, 0.5)), "linearity"),
        (planted(spoil_vjp=lambda dx, dy: dx + 1e-3), "linearity"),
        (replace(QUARTIC, curvature=lambda at: np.triu(np.ones((3, 3))), calls=[]), "symmetry"),
    ],
    ids=["jvp", "clipped", "constant", "Hessian"],
)
@pytest.mark.parametrize("budget", [1000, 150])
def test_identities_fail(model: FunctionModel, check_name: str, budget: int) -> None:
    assert check_name in failed(check(replace(model, calls=[]), budget))


def test_a_random_gradient_is_not_deterministic() -> None:
    rng = np.random.default_rng(0)
    model = replace(QUARTIC, spoil_vjp=lambda dx, dy: dx * rng.uniform(0.9, 1.1), calls=[])
    assert "determinism" in failed(check(model))


def test_a_gradient_in_one_input_alone_fails() -> None:
    """Of two inputs, a request may name one."""

    @dataclass
    class Subsets(FunctionModel):
        wrong_alone: float = 1.0

        def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
            factor = self.wrong_alone if list(inputs) == ["x1"] else 1.0
            return {name: factor * dx for name, dx in super().vjp(point, output, cotangent, inputs).items()}

    shared = (PRODUCTS.f, PRODUCTS.jacobians, PRODUCTS.inputs, PRODUCTS.outputs)
    right = Subsets(*shared, one_by_one=False, takes_subsets=True)
    entries = {entry["check"]: entry for entry in check(right)["checks"]}
    assert entries["subset"]["verdict"] == "pass"
    assert failed(check(replace(right, wrong_alone=1.001, calls=[]))) == {"subset"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("budget", [300, 100, 40, 5, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_tolerance_of_a_solver_is_measured_not_blamed(budget: int, seed: int) -> None:
    assert not failed(check(solver(1e-6), budget, seed))
    if budget >= 100:
        assert "derivative" in failed(check(solver(1e-6, factor=1.05), budget, seed))


def test_an_error_that_a_tolerance_of_a_solver_explains_is_inconclusive() -> None:
    found = check(replace(QUARTIC, spoil_vjp=lambda dx, dy: dx * (1 + 1e-7), calls=[]))
    (entry,) = [entry for entry in found["checks"] if entry["check"] == "derivative"]
    assert entry["verdict"] == "inconclusive"
    assert "off by no more than a solver's tolerance" in entry["sentence"]
    assert "off by up to 1e-07 of it, which is wrong unless the function iterates" in entry["sentence"]


def fixed_point(x: Array) -> Array:
    """Return the solution of u = cos(u x)/2 + 0.3 roll(u), iterated until it moves by less than 1e-8."""
    u, last = np.ones_like(x), np.full_like(x, np.inf)
    while np.abs(u - last).max() >= 1e-8:
        u, last = 0.5 * np.cos(u * x) + 0.3 * np.roll(u, 1), u
    return u


def its_jacobian(at: dict[str, Array]) -> dict[tuple[str, str], Array]:
    x = at["x"]
    u = fixed_point(x)
    s = 0.5 * np.sin(u * x)
    matrix = np.eye(len(x)) + np.diag(s * x) - 0.3 * np.roll(np.eye(len(x)), 1, axis=0)
    return {("y", "x"): np.linalg.solve(matrix, -np.diag(s * u))}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("budget", [5, 60, 120, 300])
def test_an_iteration_that_stops_early_beside_its_exact_adjoint_is_not_blamed(budget: int, seed: int) -> None:
    slots = [Slot("x", (3,))], [Slot("y", (3,))]
    model = FunctionModel(lambda at: {"y": fixed_point(at["x"])}, its_jacobian, *slots)
    assert not failed(check(model, budget, seed))
    assert "derivative" in failed(check(replace(model, spoil_vjp=lambda dx, dy: 1.05 * dx, calls=[]), 300, seed))


@pytest.mark.parametrize("seed", range(3))
def test_jumps_of_values_beside_an_exact_gradient_are_measured(seed: int) -> None:
    assert not failed(check(exact_adjoint(1e-6), 300, seed))
    assert not failed(check(exact_adjoint(1e-12), 300, seed))


@pytest.mark.parametrize("seed", range(3))
def test_random_noise_of_values_is_measured(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def noisy(at):
        return {name: y * (1 + 1e-6 * rng.standard_normal(y.shape)) for name, y in QUARTIC.f(at).items()}

    assert not failed(check(replace(QUARTIC, f=noisy, calls=[]), seed=seed))
    wrong = replace(QUARTIC, f=noisy, spoil_vjp=lambda dx, dy: 1.05 * dx, calls=[])
    assert "derivative" in failed(check(wrong, seed=seed))


def test_single_precision_is_no_error() -> None:
    assert not failed(check(solver(1e-12, "float32"), 150))
    assert "derivative" in failed(check(solver(1e-12, "float32", factor=1.01), 150))


def test_large_steps_may_leave_the_domain() -> None:
    at = {"x": np.array([0.5, 0.75, 0.99])}
    document = check(refusing_outside(QUARTIC, 1.0), given=[at])
    assert not failed(document)
    wrong = refusing_outside(replace(QUARTIC, spoil_vjp=lambda dx, dy: 1.01 * dx), 1.0)
    assert "derivative" in failed(check(wrong, given=[at]))


def test_an_inconclusive_number_is_no_pass() -> None:
    model = replace(QUARTIC, f=lambda at: {"y": np.array([np.abs(at["x"] - 0.5).sum()])}, calls=[])
    document = check(model, given=[{"x": np.full(3, 0.5)}])
    assert document["verdict"] != "pass"


def test_the_scope_says_what_is_not_shown() -> None:
    assert "chosen at random" in check(planted(), 5)["scope"]
    assert (
        "Subsets, linearity, adjoint, symmetry, determinism and the second order were not checked"
        in check(planted(), 5)["scope"]
    )
    assert "noise of values and gradients was measured" in check(planted(), 1000)["scope"]


def test_a_small_difference_that_a_solver_may_explain_is_told_so() -> None:
    (entry,) = [e for e in check(solver(1e-12, factor=1.005), 20)["checks"] if e["verdict"] == "fail"]
    assert "a solver's tolerance above 1e-6 would explain it" in entry["sentence"]


def scalar(f, df, slots: int = 5) -> FunctionModel:
    """Return a model of f(x) for each of the numbers of x."""
    inputs, outputs = [Slot("x", (slots,))], [Slot("y", (slots,))]
    return FunctionModel(lambda at: {"y": f(at["x"])}, lambda at: {("y", "x"): np.diag(df(at["x"]))}, inputs, outputs)


@pytest.mark.parametrize("budget", [5, 20, 60, 120])
@pytest.mark.parametrize("spoil", [lambda dx, dy: 2 * dx, lambda dx, dy: 0 * dx], ids=["twice", "zero"])
def test_a_wrong_gradient_beside_a_large_constant_never_passes(spoil, budget: int) -> None:
    model = scalar(lambda x: 1e6 + x**2, lambda x: 2 * x)
    assert not failed(check(model, budget))
    wrong = check(replace(model, spoil_vjp=spoil, calls=[]), budget)
    assert wrong["verdict"] == ("fail" if budget == 120 else "inconclusive")


@pytest.mark.parametrize("budget", [20, 300])
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_huge_and_tiny_numbers(size: float, budget: int) -> None:
    model = scalar(lambda x: size * np.exp(x), lambda x: size * np.exp(x))
    assert check(model, budget)["verdict"] == "pass"
    assert "derivative" in failed(check(replace(model, spoil_vjp=lambda dx, dy: 1.01 * dx, calls=[]), budget))


@pytest.mark.parametrize("budget", [5, 20, 600])
def test_a_constant_has_the_derivative_0(budget: int) -> None:
    model = scalar(lambda x: np.full_like(x, 3.0), np.zeros_like)
    assert check(model, budget)["verdict"] == "pass"
    assert "derivative" in failed(check(replace(model, spoil_vjp=lambda dx, dy: dx + dy, calls=[]), budget))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("budget", [5, 60, 600])
def test_a_function_that_oscillates_between_the_steps_is_not_blamed(budget: int, seed: int) -> None:
    model = scalar(lambda x: np.sin(1000 * x), lambda x: 1000 * np.cos(1000 * x))
    assert not failed(check(model, budget, seed))


@pytest.mark.parametrize("budget", [*RICH, *POOR])
def test_a_transposed_matrix_fails(budget: int) -> None:
    matrix = np.arange(9.0).reshape(3, 3) ** 2
    slots = [Slot("x", (3,))], [Slot("y", (3,))]
    for right in (True, False):
        jacobian = matrix if right else matrix.T
        model = FunctionModel(lambda at: {"y": matrix @ at["x"]}, lambda _, j=jacobian: {("y", "x"): j}, *slots)
        assert ("derivative" not in failed(check(model, budget))) == right


@pytest.mark.parametrize("budget", [1000, 120])
def test_the_action_of_a_hessian_is_compared_with_gradients(budget: int) -> None:
    def curved(change) -> FunctionModel:
        return replace(QUARTIC, curvature=lambda at: change(quartic_hessian(at["x"])), calls=[])

    (entry,) = (entry for entry in check(curved(np.copy), budget)["checks"] if entry["check"] == "second")
    assert (entry["verdict"], entry["order"], min(map(int, entry["digits"])) >= 10) == ("pass", 2, True)
    wrong = (lambda h: 2 * h, lambda h: np.diag(np.diag(h)), lambda h: h * (1 + 0.01 * np.diag([1, 0, 0])))
    assert all("second" in failed(check(curved(change), budget)) for change in wrong)
    by_differences = check(curved(lambda h: h * (1 + 1e-6)), budget)
    assert (by_differences["verdict"], failed(by_differences)) == ("inconclusive", set())
    assert (
        check(
            replace(
                QUARTIC,
                f=lambda at: {"y": at["x"].sum(keepdims=True)},
                jacobians=lambda _: {("y", "x"): np.ones((1, 3))},
                curvature=lambda at: np.zeros((3, 3)),
                calls=[],
            ),
            budget,
        )["verdict"]
        == "pass"
    )


SHOWN_BY = {
    "outputs": "derivative",
    "tangents": "adjoint",
    "cotangents": "adjoint",
    "Hessian": "symmetry",
    "diagonal": "second",
}


@pytest.mark.parametrize("shows", SHOWN_BY)
@pytest.mark.parametrize("budget", [1000, 120])
def test_numbers_in_small_units_are_judged(shows: str, budget: int) -> None:
    for scales in ((1e-12, 1e-4, 1.0, 1e4, 1e12), (1e-6, 1.0, 1e6)):
        for factor in (-1000.0, 1.01):
            assert SHOWN_BY[shows] in failed(check(of_scales(factor, shows, scales), budget))
        assert not failed(check(of_scales(1.0, shows, scales), budget))
    found = check(of_scales(1.0, "outputs"), budget)
    assert found["verdict"] == "pass"
    assert all(
        int(digits) >= 11 for entry in found["checks"] if entry["check"] == "derivative" for digits in entry["digits"]
    )


@pytest.mark.parametrize("budget", [60, 20])
def test_few_evaluations_see_numbers_of_the_output_in_small_units(budget: int) -> None:
    assert check(of_scales(1.0, "outputs"), budget)["verdict"] == "pass"
    for factor in (-1000.0, 1.01):
        assert "derivative" in failed(check(of_scales(factor, "outputs"), budget))


@pytest.mark.parametrize("factor", [1.0, -1000.0])
@pytest.mark.parametrize("budget", [1000, 120, 20])
def test_a_number_under_the_rounding_of_its_sum_is_inconclusive_and_named(budget: int, factor: float) -> None:
    found = check(of_scales(factor, "inputs"), budget)
    assert (found["verdict"], failed(found)) == ("inconclusive", set())
    (sentence,) = (entry["sentence"] for entry in found["checks"] if entry["check"] == "derivative")
    assert "but dx[0], dx[1]" in sentence
    assert "can be judged nowhere: the error bar is larger than the number" in sentence
    assert "at ;" not in sentence


def test_an_output_of_rounding_noise_hides_nothing() -> None:
    """Noise of 1e-17 beside 1: in units of its own, it would be as large as the other number."""

    def f(at):
        x = at["x"]
        return {"y": np.array([x @ x, (0.1 + x[0]) - x[0] - 0.1])}

    model = FunctionModel(
        f, lambda at: {("y", "x"): np.stack([2 * at["x"], 0 * at["x"]])}, [Slot("x", (3,))], [Slot("y", (2,))]
    )
    assert check(replace(model, calls=[]), 1000)["verdict"] == "pass"
    assert "derivative" in failed(check(replace(model, spoil_vjp=lambda dx, dy: 1.01 * dx, calls=[]), 1000))
