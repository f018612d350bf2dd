"""A server that answers with the numbers of another point is found, whatever its cache's key; no other is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pullback.dtypes import Array
from pullback.errors import ModelFailed
from pullback.gradcheck.function import Arrays, Point, Slot
from tests.server_checks.caches import Caching, Key, narrowed, rounded
from tests.server_checks.models import PRODUCTS, QUARTIC, FunctionModel, check, failed, solver

pytestmark = pytest.mark.slow

GRADIENTS = replace(QUARTIC, curvature=None)
KEYS: dict[str, Key] = {
    **{f"{decimals} decimals": rounded(decimals) for decimals in (1, 2, 4, 6, 8, 10)},
    **{dtype: narrowed(dtype) for dtype in ("float32", "float16")},
    "text": str,
    "%g": lambda x: tuple(f"{number:g}" for number in x),
    "shape": lambda x: x.shape,
    "first number": lambda x: x[0],
    "last number": lambda x: x[-1],
}
# Keys that show as a wrong derivative of the values, or leave it without digits.
COARSE = ("1 decimals", "2 decimals", "shape", "first number", "last number")


def caching(model: FunctionModel, kinds: str, key: Key, **how: Any) -> Any:
    return Caching(replace(model, calls=[]), kinds.split(), key, **how)


def entry_of(document: dict[str, Any]) -> dict[str, Any]:
    return next(entry for entry in document["checks"] if entry["check"] == "freshness")


@pytest.mark.parametrize("points", [False, True], ids=["answers", "points"])
@pytest.mark.parametrize("key", KEYS)
def test_gradients_of_another_point_fail(key: str, points: bool) -> None:
    for seed in range(5):
        document = check(caching(GRADIENTS, "vjp", KEYS[key], points_=points), 300, seed)
        assert document["verdict"] == "fail", (key, seed)
        assert not key.endswith(("decimals", "float32")) or "freshness" in failed(document), (key, seed)


@pytest.mark.parametrize("key", [key for key in KEYS if key not in COARSE])
@pytest.mark.parametrize("kinds", ["values", "values vjp"])
def test_values_of_another_point_fail(key: str, kinds: str) -> None:
    for seed in range(5):
        assert check(caching(GRADIENTS, kinds, KEYS[key]), 300, seed)["verdict"] == "fail", (key, seed)


@pytest.mark.parametrize("key", COARSE)
def test_values_of_a_point_far_away_do_not_pass(key: str) -> None:
    for seed in range(5):
        assert check(caching(GRADIENTS, "values vjp", KEYS[key]), 300, seed)["verdict"] != "pass", (key, seed)


@pytest.mark.parametrize("key", ["4 decimals", "6 decimals", "8 decimals", "float32", "text", "shape", "first number"])
@pytest.mark.parametrize(("model", "kind"), [(QUARTIC, "hessian"), (PRODUCTS, "vjp"), (PRODUCTS, "jvp")])
def test_other_derivatives_of_another_point_fail(model: FunctionModel, kind: str, key: str) -> None:
    for seed in range(5):
        assert failed(check(caching(model, kind, KEYS[key]), 1000, seed)), (key, seed)


@pytest.mark.parametrize("number", ["x0", "x1"])
def test_a_key_that_lacks_an_input_fails(number: str) -> None:
    at = slice(0, 3) if number == "x1" else slice(3, 5)
    for seed in range(5):
        found = check(caching(PRODUCTS, "vjp", lambda x: x[at].tobytes()), 1000, seed)
        assert "freshness" in failed(found)
        assert "as with a cache whose key lacks that" in entry_of(found)["sentence"]


@pytest.mark.parametrize(
    "how",
    [{"last": 1}, {"last": 4}, {"last": 1, "close": 1e-5}, {"last": 8, "close": 1e-5}, {"last": 1, "close": 1e-8}],
)
@pytest.mark.parametrize("budget", [1000, 120])
def test_a_cache_that_forgets_fails(how: dict[str, Any], budget: int) -> None:
    for seed in range(5):
        found = check(caching(GRADIENTS, "vjp", rounded(6), **how), budget, seed)
        assert failed(found) == {"freshness"}, seed
        # Of values, a solver that starts at its last solution may do so.
        of_values = check(caching(GRADIENTS, "values", rounded(6), **how), budget, seed)
        assert of_values["verdict"] == ("inconclusive" if how["last"] == 1 else "fail")


@pytest.mark.parametrize(
    ("key", "likely"),
    [
        (rounded(6), "rounds inputs to 6 decimals"),
        (rounded(3), "rounds inputs to 3 decimals"),
        (narrowed("float32"), "has inputs in float32"),
        (lambda x: x.shape, "lacks the inputs"),
    ],
)
def test_a_finding_names_the_key_and_both_requests(key: Key, likely: str) -> None:
    entry = entry_of(check(caching(GRADIENTS, "vjp", key, points_=True), 300))
    assert (entry["verdict"], entry["order"], entry["input"]) == ("fail", 1, "x")
    assert "it has the same bits up to " in entry["sentence"]
    assert likely in entry["sentence"]
    assert entry["reproduce"].count("curl -s http://localhost/Gradient ") == 2
    assert entry["shows"] == "output, the same in both answers,"


def of_three(f: Any, jacobian: Any, outputs: int = 3, dtype: str = "float64") -> FunctionModel:
    """Return a model of a function of three numbers."""
    slots = [Slot("x", (3,), dtype)], [Slot("y", (outputs,), dtype)]
    return FunctionModel(lambda at: {"y": f(at["x"])}, lambda at: {("y", "x"): jacobian(at["x"])}, *slots)


def network(width: int, dtype: str = "float64") -> FunctionModel:
    """Return a network of one layer with ReLU: its gradients are constant between kinks."""
    rng = np.random.default_rng(width)
    w, b, v = (rng.standard_normal(shape).astype(dtype) for shape in ((width, 3), width, (1, width)))

    def jacobian(x: Array) -> Array:
        return (((v * (w @ x.astype(dtype) + b > 0)) @ w) / width).astype(float)

    return of_three(lambda x: (v @ np.maximum(w @ x.astype(dtype) + b, 0) / width).astype(float), jacobian, 1)


def at_rounded(decimals: int) -> FunctionModel:
    """Return a model that computes at rounded inputs, and so forgets none: it has noise."""
    return replace(
        GRADIENTS,
        f=lambda at: GRADIENTS.f({"x": np.round(at["x"], decimals)}),
        jacobians=lambda at: GRADIENTS.jacobians({"x": np.round(at["x"], decimals)}),
        calls=[],
    )


def narrow(dtype: str) -> FunctionModel:
    """Return the model in a narrower dtype, behind a protocol that has float64 alone."""
    return replace(
        GRADIENTS,
        f=lambda at: {"y": GRADIENTS.f({"x": at["x"].astype(dtype)})["y"].astype(float)},
        jacobians=lambda at: {k: j.astype(float) for k, j in GRADIENTS.jacobians({"x": at["x"].astype(dtype)}).items()},
        calls=[],
    )


def warm_newton(tolerance: float) -> FunctionModel:
    """Solve u + x u³ = 1, from the last solution on."""
    last = np.ones(3)

    def solve(x: Array) -> Array:
        nonlocal last
        while np.abs(last + x * last**3 - 1).max() > tolerance:
            last = last - (last + x * last**3 - 1) / (1 + 3 * x * last**2)
        return last

    return of_three(solve, lambda x: np.diag(-(solve(x) ** 3) / (1 + 3 * x * solve(x) ** 2)))


def noisy(level: float) -> FunctionModel:
    rng = np.random.default_rng(0)

    def f(at: Arrays) -> dict[str, Array]:
        return {"y": GRADIENTS.f(at)["y"] * (1 + level * rng.standard_normal(1))}

    return replace(GRADIENTS, f=f, spoil_vjp=lambda dx, dy: dx * (1 + level * rng.standard_normal(3)), calls=[])


MATRIX = np.arange(9.0).reshape(3, 3) ** 2
RIGHT = {
    "curved": GRADIENTS,
    "linear": of_three(lambda x: MATRIX @ x, lambda x: MATRIX),
    "affine": of_three(lambda x: 1e3 + MATRIX @ x, lambda x: MATRIX),
    "constant": of_three(lambda x: np.ones(3), lambda x: np.zeros((3, 3))),
    "linear in some": of_three(lambda x: np.array([x[0] ** 2 + x[1]]), lambda x: np.array([[2 * x[0], 1, 0]]), 1),
    "separable": of_three(lambda x: x**3, lambda x: np.diag(3 * x**2)),
    "largest": of_three(lambda x: np.array([x.max()]), lambda x: (x == x.max())[None].astype(float), 1),
    "ReLU": network(16),
    "wide ReLU": network(10_000),
    "ReLU in float32": network(1000, "float32"),
    "float32": narrow("float32"),
    "float16": narrow("float16"),
    "dead zone": of_three(
        lambda x: np.maximum(np.abs(x - 0.5) - 0.1, 0) ** 2,
        lambda x: np.diag(2 * np.sign(x - 0.5) * np.maximum(np.abs(x - 0.5) - 0.1, 0)),
    ),
    "table": of_three(lambda x: np.round(64 * x) / 64, lambda x: np.zeros((3, 3))),
    "oscillates": of_three(lambda x: np.sin(1e6 * x), lambda x: np.diag(1e6 * np.cos(1e6 * x))),
    **{f"rounded to {decimals}": at_rounded(decimals) for decimals in (3, 4, 6, 8)},
    **{f"solver to {tolerance}": solver(tolerance) for tolerance in (1e-4, 1e-8)},
    **{f"warm solver to {tolerance}": warm_newton(tolerance) for tolerance in (1e-4, 1e-8)},
    **{f"noise of {level}": noisy(level) for level in (1e-10, 1e-6)},
    "two inputs": PRODUCTS,
    "Hessian": QUARTIC,
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("budget", [1000, 120])
def test_right_answers_do_not_fail(name: str, budget: int) -> None:
    for seed in range(2):
        found = check(replace(RIGHT[name], calls=[]), budget, seed)
        entries = [entry for entry in found["checks"] if entry["check"] == "freshness"]
        assert all(entry["verdict"] == "pass" for entry in entries), entries
        assert len(entries) == 1 or budget == 120


@pytest.mark.parametrize("name", ["curved", "linear", "constant", "ReLU"])
@pytest.mark.parametrize("spoil", [lambda dx, dy: 0 * dx, lambda dx, dy: dx + 1, lambda dx, dy: 1.09 * dx])
def test_a_wrong_gradient_is_not_called_that_of_another_point(name: str, spoil: Any) -> None:
    found = check(replace(RIGHT[name], spoil_vjp=spoil, calls=[]), 300)
    assert entry_of(found)["verdict"] == "pass"


@pytest.mark.parametrize("kinds", ["values", "vjp", "values vjp jvp"])
@pytest.mark.parametrize("last", [1, 100])
def test_a_cache_whose_key_has_all_bits_passes(kinds: str, last: int) -> None:
    for model in (GRADIENTS, PRODUCTS):
        found = check(caching(model, kinds, lambda x: x.tobytes(), last=last), 1000)
        assert (found["verdict"], entry_of(found)["verdict"]) == ("pass", "pass")


def test_few_evaluations_look_at_no_points_nearby_and_say_so() -> None:
    found = check(replace(GRADIENTS, calls=[]), 40)
    assert not [entry for entry in found["checks"] if entry["check"] == "freshness"]
    assert "Whether answers are those of other points was not checked" in found["scope"]
    assert "was not checked" not in check(replace(GRADIENTS, calls=[]), 300)["scope"]


def test_a_domain_that_ends_nearby() -> None:
    """Points that the model refuses show nothing."""
    at = {"x": np.array([0.5, 0.75, 0.99])}

    class Refusing(FunctionModel):
        def values(self, point: Point) -> Arrays:
            if (point.inputs["x"] > at["x"]).any():
                self.calls.append("values")
                raise ModelFailed("outside")
            return super().values(point)

    model = Refusing(GRADIENTS.f, GRADIENTS.jacobians, GRADIENTS.inputs, GRADIENTS.outputs)
    assert "freshness" not in failed(check(model, 1000, given=[at]))
