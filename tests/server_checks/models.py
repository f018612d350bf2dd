"""Models in this process, right and wrong, for the checks of servers: what a server computes, without a server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pullback.dtypes import Array
from pullback.errors import ModelFailed
from pullback.gradcheck.function import LARGEST_TOLERANCE, Arrays, Model, Point, Request, Slot, draw_inputs
from pullback.gradcheck.number_comparison import Tolerances
from pullback.gradcheck.plan import plans
from pullback.gradcheck.report import FunctionReport

Jacobians = Callable[..., dict[tuple[str, str], Array]]


@dataclass
class FunctionModel(Model):
    """A model of Python functions: ``f`` from inputs to outputs, and its Jacobians by (output, input)."""

    f: Callable[[Arrays], dict[str, Array]]
    jacobians: Callable[[Arrays], dict[tuple[str, str], Array]]
    inputs: list[Slot]
    outputs: list[Slot]
    spoil_vjp: Callable[[Array, Array], Array] = lambda dx, dy: dx
    spoil_jvp: Callable[[Array], Array] = lambda ty: ty
    curvature: Callable[[Arrays], Array] | None = None
    """The Hessian of the only number of the only output in the only input."""
    has_jvp: bool = False
    one_by_one: bool = True
    takes_subsets: bool = False
    is_energy: bool = False
    tolerance: float = LARGEST_TOLERANCE
    name: str = "model"
    remark: str = ""
    calls: list[str] = field(default_factory=list)

    @property
    def has_hessian(self) -> bool:
        return self.curvature is not None

    def points(self, given: Sequence[Any], count: int, rng: np.random.Generator) -> list[Point]:
        return [Point(each) for each in given] or [Point(draw_inputs(self.inputs, rng)) for _ in range(count)]

    def values(self, point: Point) -> Arrays:
        self.calls.append("values")
        return self.f(point.inputs)

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        found = {}
        self.calls += ["vjp"] * (len(inputs) if self.one_by_one else 1)
        for name in inputs:
            jacobian = self.jacobians(point.inputs)[output, name]
            found[name] = self.spoil_vjp(jacobian.T @ cotangent, cotangent)
        return found

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        self.calls += ["jvp"] * len(outputs)
        return {y: self.spoil_jvp(self.jacobians(point.inputs)[y, name] @ tangent) for y in outputs}

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        self.calls.append("hessian")
        assert self.curvature is not None
        return cotangent[0] * (self.curvature(point.inputs) @ vector)

    def evaluation(self, point: Point, output: str) -> Request:
        return Request("http://localhost/Evaluate", {}, "output")

    def request(self, point: Point, output: str, name: str, cotangent: Array) -> Request:
        return Request("http://localhost/Gradient", {"outWrt": output, "inWrt": name}, "output")


def _products(at: Arrays) -> dict[str, Array]:
    x, z = at["x0"], at["x1"]
    return {"y0": np.array([x[0] * x[1] * z[0], x[2] ** 3 + np.exp(z[1])]), "y1": np.array([np.sin(x @ x)])}


def _jacobians(at: Arrays) -> dict[tuple[str, str], Array]:
    x, z = at["x0"], at["x1"]
    return {
        ("y0", "x0"): np.array([[x[1] * z[0], x[0] * z[0], 0], [0, 0, 3 * x[2] ** 2]]),
        ("y0", "x1"): np.array([[x[0] * x[1], 0], [0, np.exp(z[1])]]),
        ("y1", "x0"): 2 * np.cos(x @ x) * x[None],
        ("y1", "x1"): np.zeros((1, 2)),
    }


PRODUCTS = FunctionModel(
    _products, _jacobians, [Slot("x0", (3,)), Slot("x1", (2,))], [Slot("y0", (2,)), Slot("y1", (1,))], has_jvp=True
)


def quartic_hessian(x: Array) -> Array:
    """Return the Hessian of Σ x⁴ + Π x."""
    return np.where(np.eye(len(x)) > 0, 12 * x**2, np.prod(x) / np.outer(x, x))


QUARTIC = FunctionModel(
    lambda at: {"y": np.array([np.sum(at["x"] ** 4) + np.prod(at["x"])])},
    lambda at: {("y", "x"): (4 * at["x"] ** 3 + np.prod(at["x"]) / at["x"])[None]},
    [Slot("x", (3,))],
    [Slot("y", (1,))],
    curvature=lambda at: quartic_hessian(at["x"]),
)


def solver(tolerance: float, dtype: str = "float64", factor: float = 1.0) -> FunctionModel:
    """Solve (2 + x) u - u[i-1] - u[i+1] = 1 by Jacobi's iteration to a tolerance; the adjoint iterates too."""

    def solve(x: Array, b: Array) -> Array:
        u = np.zeros(len(x))
        while True:
            new = (b + np.r_[0, u[:-1]] + np.r_[u[1:], 0]) / (2 + x)
            if np.abs(new - u).max() < tolerance * np.abs(new).max():
                return new.astype(dtype).astype(float)
            u = new

    @dataclass
    class Solver(FunctionModel):
        def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
            self.calls.append("vjp")
            x = point.inputs["x"]
            return {"x": -factor * solve(x, cotangent) * solve(x, np.ones(len(x)))}

    slots = [Slot("x", (6,), dtype)], [Slot("y", (6,), dtype)]
    return Solver(lambda at: {"y": solve(at["x"], np.ones(6))}, lambda _: {}, *slots)


def exact_adjoint(tolerance: float) -> FunctionModel:
    """Return the solver with its exact gradient, which shows nothing of the noise of its values."""

    def jacobians(at: Arrays) -> dict[tuple[str, str], Array]:
        inverse = np.linalg.inv(np.diag(2 + at["x"]) - np.eye(6, k=1) - np.eye(6, k=-1))
        return {("y", "x"): -inverse * (inverse @ np.ones(6))}

    iterated = solver(tolerance)
    return FunctionModel(iterated.f, jacobians, iterated.inputs, iterated.outputs)


def refusing_outside(model: FunctionModel, high: float) -> FunctionModel:
    """Return a model that fails where a number is larger than ``high``."""

    def f(at: Arrays) -> dict[str, Array]:
        if any((x > high).any() for x in at.values()):
            raise ModelFailed("outside of the domain")
        return model.f(at)

    return replace(model, f=f, calls=[])


def check(model: FunctionModel, budget: int = 1000, seed: int = 0, given: Sequence[Any] = ()) -> dict[str, Any]:
    """Return the report on a model."""
    points = model.points(given, 3, np.random.default_rng(seed))
    plan, count = next(plans(model, budget, None, len(given)))
    report = FunctionReport(
        target="model",
        protocol="umbridge",
        function=model,
        points=points[:count],
        are_given=bool(given),
        plan=plan,
        checks=plan.checks(model, None),
        budget=budget,
        seed=seed,
        tolerances=Tolerances(),
        config={},
    )
    report.run(lambda done: None)
    document = report.document()
    assert document["evaluations"] == len(model.calls) <= budget
    assert report.planned <= budget
    return document


def failed(document: dict[str, Any]) -> set[str]:
    """Return the checks that fail."""
    return {entry["check"] for entry in document["checks"] if entry["verdict"] == "fail"}


def of_scales(factor: float, shows: str, scales: Sequence[float] = (1e-12, 1e-4, 1.0, 1e4, 1e12)) -> FunctionModel:
    """Return s x² with one number in the smallest unit off by a factor, in the derivative that ``shows`` it.

    ``outputs`` and ``tangents`` have a number for each scale; the others are their sum.
    """
    s, off = np.array(scales), np.r_[factor, np.ones(len(scales) - 1)]
    is_sum = shows not in ("outputs", "tangents")
    slots = [Slot("x", (len(s),))], [Slot("y", (1 if is_sum else len(s),))]
    curvature = np.diag(2 * s * off if shows == "diagonal" else 2 * s)
    curvature[0, 1] = (factor - 1) * np.sqrt(s[0] * s[1]) if shows == "Hessian" else 0.0
    return FunctionModel(
        lambda at: {"y": np.sum(s * at["x"] ** 2, keepdims=True) if is_sum else s * at["x"] ** 2},
        lambda at: {("y", "x"): (2 * s * at["x"])[None] if is_sum else np.diag(2 * s * at["x"])},
        *slots,
        spoil_vjp=lambda dx, dy: dx * off if shows in ("inputs", "outputs", "cotangents") else dx,
        spoil_jvp=lambda ty: ty * off if shows == "tangents" else ty,
        curvature=(lambda at: curvature) if shows in ("Hessian", "diagonal") else None,
        has_jvp=shows in ("tangents", "cotangents"),
    )
