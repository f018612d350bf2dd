"""Checks of the claims of an op, each at one point in float64: the gradient, its own gradient, and their properties.

Directions are random, never 1 and never constant, so that a forgotten, squared or transposed factor ``dy`` shows.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.autodiff.derivatives import Absent
from app.autodiff.point import Point, number
from app.runtime import modes
from app.runtime.calculus import Calculus
from app.runtime.modes import Results, Traits
from app.runtime.traces import Reference
from ops import Array, Derivative, Formula, Op, Surrogate, Tensor
from tests.ops.cases import (
    Answer,
    Named,
    Truth,
    answer,
    bounds,
    close,
    differentiable_inputs,
    directions,
    eps,
    moved_to,
    room,
    truth,
    used,
)
from tests.ops.numeric import check_gradient


@dataclass(frozen=True)
class CotangentSlots:
    """The program of d⟨vjp(x, dy), v⟩/d(dy) at any dy: what ``vjp_vjp`` returns for ``dy``, and a jvp where linear.

    Leaves are the inputs, the number attributes, a cotangent of each differentiable output and a vector of each
    differentiable input.
    """

    op: Op
    dtype: str
    static: tuple[tuple[str, Any], ...]

    @property
    def reference(self) -> Reference:
        op = weakref.ref(self.op)
        return Reference(op, op, f"slots of cotangents {self.dtype} {self.static}")

    @property
    def traits(self) -> Traits:
        names = (*self.op.inputs, *self.op.attrs.number_names(), *self._outputs, *self._inputs)
        return Traits(self.op.name, 2, (None,) * len(names), False, False)

    @property
    def op_name(self) -> bytes:
        return self.op.name.encode()

    def describe(self, leaves: Sequence[Array]) -> str:
        return self.op.name

    @property
    def _outputs(self) -> list[str]:
        return [slot.name for slot in self.op.outputs if self.op.is_differentiable(slot, self.dtype)]

    @property
    def _inputs(self) -> list[str]:
        return [slot.name for slot in self.op.inputs if self.op.is_differentiable(slot, self.dtype)]

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        rest = iter(leaves)
        xs = {slot.name: next(rest) for slot in self.op.inputs}
        numbers = {name: next(rest) for name in self.op.attrs.number_names()}
        dys = {name: next(rest) for name in self._outputs}
        vectors = {name: next(rest) for name in self._inputs}
        calculus.watch([*(x for x in xs.values() if x.dtype.is_floating), *dys.values()])
        result = self.op.function(*xs.values(), **dict(self.static), **numbers)
        ys = dict(zip([slot.name for slot in self.op.outputs], result if _is_many(result) else [result], strict=True))
        dxs = calculus.pullback([ys[name] for name in dys], [xs[name] for name in vectors])(list(dys.values()))
        present = {name: dx for name, dx in zip(vectors, dxs, strict=True) if dx is not None}
        found = calculus.pullback(list(present.values()), list(dys.values()))([vectors[name] for name in present])
        return {("slots", name): slot for name, slot in zip(dys, found, strict=True)}


def check_first(point: Point, rng: np.random.Generator) -> None:
    """Check that dx at a random dy satisfies ``claim.first``."""
    along, claim = directions(point, rng), point.op.claim(point.spec.attrs).first
    found = truth(point, "vjp", used(along, "vjp"))
    gradient, within = _exact(point, found)
    weights = _weights(point, along["cotangents"])
    match claim:
        case Formula(vjp=formula):
            leaves = differentiable_inputs(point)

            def claimed(xs: Named) -> dict[str, Array]:
                slots = formula(_primals(point, xs), list(weights.values()))
                return {name: dx for name, dx in zip(point.inputs, slots, strict=True) if dx is not None}

            _compare(gradient, within, claimed, leaves, "dx against its formula")
        case Surrogate(of=of):
            frozen = _primals(point, {})
            check_gradient(
                gradient,
                within,
                lambda xs: _outputs(point, of(_primals(point, xs), frozen)),
                differentiable_inputs(point),
                weights=weights,
                what="dx against the derivative of the surrogate",
                reach=room(point),
            )
        case Derivative():
            static = point.spec.attrs.model_dump()
            check_gradient(
                gradient,
                within,
                lambda xs: _outputs(point, point.op.reference(*_primals(point, xs), **static)),
                differentiable_inputs(point),
                weights=weights,
                what="dx against the derivative of the reference",
                reach=room(point),
            )


def check_second(point: Point, rng: np.random.Generator) -> None:
    """Check that the x slots of the second order at a random dy and ddx satisfy ``claim.second``."""
    along, claim = directions(point, rng), point.op.claim(point.spec.attrs).second
    found = truth(point, "hvp", used(along, "hvp"))
    products, within = _exact(point, found, "products")
    dys, vectors = list(_weights(point, along["cotangents"]).values()), along["vectors"]
    leaves = differentiable_inputs(point)
    if isinstance(claim, Formula):

        def claimed(xs: Named) -> dict[str, Array]:
            slots = claim.vjp(_primals(point, xs), dys, [vectors.get(name) for name in point.inputs])
            return {name: slot for name, slot in zip(point.inputs, slots, strict=True) if slot is not None}

        _compare(products, within, claimed, leaves, "the x slots against their formula")
    elif isinstance(claim, Surrogate):
        frozen = _primals(point, {})

        def surrogate(xs: Named) -> dict[str, Array]:
            slots = claim.of(_primals(point, xs), dys, frozen)
            return {name: slot for name, slot in zip(point.inputs, slots, strict=True) if name in vectors}

        what = "the x slots against the surrogate's"
        check_gradient(products, within, surrogate, leaves, weights=vectors, what=what, reach=room(point))
    else:
        check_gradient(
            products,
            within,
            lambda xs: _slots(point, answer(moved_to(point, xs), "vjp", used(along, "vjp"))),
            leaves,
            weights=vectors,
            what="the x slots against the derivative of the op's own vjp",
            reach=room(point),
        )


def check_cotangent_slots(point: Point, rng: np.random.Generator) -> None:
    """Check that the dy slots of the second order at a random dy and ddx are the derivative of the op's own vjp in dy.

    For a gradient that is linear in dy they are a jvp, and the difference quotient is exact up to rounding.
    """
    along = directions(point, rng)
    program = CotangentSlots(point.op, point.spec.dtype, tuple(point.spec.attrs.static().items()))
    numbers = [number(value, point.spec.dtype) for value in point.spec.attrs.numbers().values()]
    dys, vectors = along["cotangents"], along["vectors"]

    def slots(dys: Named) -> dict[str, Array]:
        leaves = [*point.inputs.values(), *numbers, *dys.values(), *vectors.values()]
        found = modes.run(program, point.spec.mode, leaves, point.spec.device)
        return {name: np.zeros_like(dy) if (x := found["slots", name]) is None else x for name, dy in dys.items()}

    def gradients(dys: Named) -> dict[str, Array]:
        return _slots(point, answer(point, "vjp", {"cotangents": dys}))

    elementwise = point.spec.batching == "elementwise"
    within = bounds(slots, dys, eps(point.spec.dtype), elementwise=elementwise)
    what = "the dy slots against the derivative of the op's vjp"
    check_gradient(slots(dys), within, gradients, dys, weights=vectors, what=what)


def check_linear(point: Point, rng: np.random.Generator) -> None:
    """Check that vjp(2a + 3b) = 2 vjp(a) + 3 vjp(b) if the claim is linear, and only then."""
    one, other = (directions(point, rng)["cotangents"] for _ in range(2))
    both = {name: 2 * one[name] + 3 * other[name] for name in one}
    parts = [truth(point, "vjp", {"cotangents": dys}) for dys in (one, other, both)]
    (a, of_a), (b, of_b), (c, of_c) = (_exact(point, part) for part in parts)
    try:
        for name in c:
            within = 2 * of_a[name] + 3 * of_b[name] + of_c[name]
            close(c[name], 2 * a[name] + 3 * b[name], within, f"vjp(2a + 3b) in {name}")
    except AssertionError:
        if point.op.claim(point.spec.attrs).linear:
            raise
    else:
        assert point.op.claim(point.spec.attrs).linear, (
            "the claim is not linear, but vjp(2a + 3b) = 2 vjp(a) + 3 vjp(b)"
        )


def check_adjoint(point: Point, rng: np.random.Generator) -> None:
    """Check that ⟨dy, jvp(tx)⟩ = ⟨vjp(dy), tx⟩."""
    along = directions(point, rng)
    forth, back = truth(point, "jvp", used(along, "jvp")), truth(point, "vjp", used(along, "vjp"))
    sides, within = [], 0.0
    for found, what, weights in ((forth, "tangents", "cotangents"), (back, "gradients", "tangents")):
        values, exact = _exact(point, found, what)
        sides.append(sum(float((along[weights][name] * value).sum()) for name, value in values.items()))
        within += sum(float((np.abs(along[weights][name]) * exact[name]).sum()) for name in values)
    close(sides[0], sides[1], within, "⟨dy, jvp(tx)⟩ against ⟨vjp(dy), tx⟩")


def check_products(point: Point, rng: np.random.Generator) -> None:
    """Check that vjp and hvp are products with the whole Jacobian and Hessian, dyᵀJ and vᵀH."""
    along = directions(point, rng)
    pairs = (("vjp", "gradients", "jacobian", "cotangents"), ("hvp", "products", "hessian", "vectors"))
    for product, what, matrix, field in pairs:
        values, exact = _exact(point, truth(point, product, used(along, product)), what)
        whole = truth(point, matrix, used(along, matrix))
        for name, value in values.items():
            expected, within = np.zeros_like(value), exact[name]
            for row, weights in along[field].items():
                key = f"{matrix}/{row}/{name}"
                if key in whole.units:
                    expected = expected + np.tensordot(weights, whole.found[key], weights.ndim)
                    within = within + np.tensordot(np.abs(weights), whole.bound(key, point.spec.dtype), weights.ndim)
            close(value, expected, within, f"{product} against the {matrix} in {name}")


def _compare(found: Named, within: Named, formula: Any, at: Named, what: str) -> None:
    expected, exact = formula(at), bounds(formula, at, eps("float64"))
    for name, value in found.items():
        close(value, expected[name], within[name] + exact[name], f"{what}, {name}")


def _slots(point: Point, found: Answer, what: str = "gradients") -> dict[str, Array]:
    """Return the gradients of the differentiable inputs by name, zeros for missing ones; or tangents of outputs."""
    live = (point.spec.outputs if what == "tangents" else point.spec.inputs).differentiable
    values = {name: found[f"{what}/{name}"] for name in live}
    return {
        name: np.zeros_like(point.inputs[name]) if isinstance(value, Absent) else value
        for name, value in values.items()
    }


def _exact(point: Point, found: Truth, what: str = "gradients") -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the slots of a result, and the error bound of each: 0 for a missing one."""
    values = _slots(point, found.found, what)
    keys = {name: f"{what}/{name}" for name in values}
    return values, {
        name: found.bound(key, point.spec.dtype) if key in found.units else np.zeros_like(values[name])
        for name, key in keys.items()
    }


def _weights(point: Point, dys: Mapping[str, Array]) -> dict[str, Array]:
    """Return a cotangent for every output: zeros for those that are not differentiable."""
    return {slot.name: dys.get(slot.name, np.zeros(())) for slot in point.op.outputs}


def _primals(point: Point, xs: Named) -> list[Array]:
    return [xs.get(name, value) for name, value in point.inputs.items()]


def _outputs(point: Point, ys: Any) -> dict[str, Array]:
    return dict(zip([slot.name for slot in point.op.outputs], ys if _is_many(ys) else [ys], strict=True))


def _is_many(values: Any) -> bool:
    return isinstance(values, tuple | list)
