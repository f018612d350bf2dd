"""The values of derived ops in every mode, at every op and example, up to the third order, and what relates them."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from app.autodiff import derivatives
from app.autodiff.absent import Absent
from app.autodiff.binding import bind
from app.autodiff.derived import DerivedOp, derivations, derive
from app.autodiff.point import Point
from ops import FLOATS, Mode, Op
from tests.ops.cases import DEVICE, Case, cases, draw

PATHS = [path for length in (1, 2, 3) for path in product(("vjp", "jvp"), repeat=length)]
# Decompositions take seconds to trace, and a third order ten.
FEW = [("vjp",), ("vjp", "vjp"), ("jvp", "vjp")]
# An op of each kind: elementwise, with integers, with static attributes, in C++. They show all pairs of derivations.
OF_EACH_KIND = ("square", "softmax_cross_entropy", "surrogate", "roi_pool")
# A third order of n products has a few hundred roundings, each of the size of the largest factors.
ROUNDINGS = 1e5


def paths_of(case: Case) -> list[tuple[str, ...]]:
    """Return all paths of derivations at an op's first example, and the short ones at the others."""
    paths = FEW if decomposes(case.op) else PATHS
    return [path for path in paths if len(path) < 3 or case.example is case.op.examples[0]]


def decomposes(op: Op) -> bool:
    return op.name.endswith("eig")


def is_derivable(op: Op) -> bool:
    return bool(derivations(op)) and any(dtype in FLOATS for dtype in op.dtypes)


def marks_of(case: Case, path: tuple[str, ...]) -> list[pytest.MarkDecorator]:
    """Return the mark of cases that take long, or add little: two derivations are enough at most examples."""
    is_first = case.example is case.op.examples[0]
    is_of_kind = is_first and case.op.name in OF_EACH_KIND and (len(path) < 3 or path == ("vjp", "vjp", "vjp"))
    if not (path == ("vjp",) or (is_first and path == ("vjp", "vjp")) or is_of_kind):
        return [pytest.mark.thorough]
    return [pytest.mark.slow] if len(path) > 1 else []


def marks_of_kind(op: Op) -> pytest.MarkDecorator:
    return pytest.mark.slow if op.name in OF_EACH_KIND else pytest.mark.thorough


CASES = [
    pytest.param(case, path, id=f"{case.op.name}-{case.example.name}-{'.'.join(path)}", marks=marks_of(case, path))
    for case in cases()
    if is_derivable(case.op)
    for path in paths_of(case)
    if case.linear or path[0] == "vjp"
]


def point(case: Case, path: tuple[str, ...], mode: Mode, rng: np.random.Generator) -> Point:
    """Return a derived op at an example, with random directions, in its widest dtype."""
    op: Op = case.op
    inputs: dict[str, Any] = dict(case.point(mode=mode).inputs)
    for derivation in path:
        at = bound(op, inputs, case, mode)
        op = derive(op, derivation)
        shapes = {name: x.shape for name, x in at.inputs.items()} | derivatives.output_shapes(at)
        of = [slot.doc.rpartition(" ")[2] for slot in op.inputs[len(inputs) :]]
        given = op.inputs[len(inputs) :]
        inputs |= {slot.name: draw(rng, shapes[name]) for slot, name in zip(given, of, strict=True)}
    return bound(op, inputs, case, mode)


def bound(op: Op, inputs: dict[str, Any], case: Case, mode: Mode) -> Point:
    run = {"mode": mode, "device": DEVICE, "max_elements": 1 << 25}
    return bind(op, inputs, case.example.attrs, case.exact, lambda x, dtype, loc: np.asarray(x, dtype), **run)


def close(one: Any, other: Any, eps: float) -> bool:
    if isinstance(one, Absent) or isinstance(other, Absent):
        # TensorFlow tells a path that leads to 0 from a missing one in some modes only.
        present = [x for x in (one, other) if not isinstance(x, Absent)]
        return not any(np.any(x) for x in present)
    size = np.maximum(1, np.abs(other)[np.isfinite(other)].max(initial=0))
    return np.allclose(one, other, rtol=0, atol=ROUNDINGS * eps * size, equal_nan=True)


def is_needed(case: Case, path: tuple[str, ...]) -> bool:
    """Return whether two more derivations are traced in about a second, and show what no other case does."""
    if len(path) == 1:
        return case.example is case.op.examples[0]
    is_quick = len(path) == 2 and not decomposes(case.op) and case.example is case.op.examples[0]
    return is_quick and case.op.name in OF_EACH_KIND


@pytest.mark.share(3)
@pytest.mark.parametrize(("case", "path"), CASES)
def test_the_values_are_those_of_another_mode(case: Case, path: tuple[str, ...]) -> None:
    eps = np.finfo(case.exact).eps
    graph = point(case, path, "graph", case.rng)
    expected = derivatives.forward(graph).run()
    if "eager" in case.op.modes and case.op.mechanism != "gradient_override_map":
        found = derivatives.forward(point(case, path, "eager", case.rng)).run()
        assert {name: close(found[name], y, eps) for name, y in expected.items()} == dict.fromkeys(expected, True)
    for name, y in expected.items():
        (slot,) = (slot for slot in graph.op.outputs if slot.name == name)
        assert isinstance(y, Absent) or y.dtype == graph.op.dtype_of(slot, case.exact)


ADJOINT = [
    pytest.param(case, path, id=f"{case.op.name}-{'.'.join(path)}", marks=marks_of_kind(case.op))
    for case, path in (param.values for param in CASES)
    if is_needed(case, path)
]


@pytest.mark.share(3)
@pytest.mark.parametrize(("case", "path"), ADJOINT)
def test_vjp_and_jvp_of_a_derived_op_are_adjoint(case: Case, path: tuple[str, ...]) -> None:
    """⟨ty, dy⟩ = ⟨tx, dx⟩, where ty is the jvp of tx and dx the vjp of dy."""
    at, rng = point(case, path, "graph", case.rng), np.random.default_rng(1)
    shapes = derivatives.output_shapes(at)
    tx = {
        name: draw(rng, at.inputs[name].shape).astype(at.inputs[name].dtype) for name in at.spec.inputs.differentiable
    }
    dy = {name: draw(rng, shape).astype(case.exact) for name, shape in shapes.items()}
    ty = derivatives.jvp(at, tx, batched=False).run()
    _, dx = derivatives.vjp(at, tuple(tx), dy, batched=False, outputs=False).run()
    forth, back = (
        [np.sum(value * to[name]) for name, value in found.items() if not isinstance(value, Absent)]
        for found, to in ((ty, dy), (dx, tx))
    )
    size = sum(
        float(np.sum(np.abs(value * to[name])))
        for found, to in ((ty, dy), (dx, tx))
        for name, value in found.items()
        if not isinstance(value, Absent)
    )
    if np.isfinite(size):
        assert abs(sum(forth) - sum(back)) <= ROUNDINGS * np.finfo(case.exact).eps * max(1, size)


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "case", [case for case in cases() if is_derivable(case.op) and case.example is case.op.examples[0]], ids=str
)
def test_the_slots_of_the_second_vjp_are_hvp_and_jvp(case: Case) -> None:
    at = point(case, ("vjp", "vjp"), "graph", case.rng)
    assert isinstance(at.op, DerivedOp)
    inputs = {slot.name: at.inputs[slot.name] for slot in case.op.inputs}
    base = case.point(inputs=inputs)
    live, outputs = base.spec.inputs.differentiable, base.spec.outputs.differentiable
    dys = dict(zip(outputs, (at.inputs[slot.name] for slot in at.op.of.inputs[len(inputs) :]), strict=True))
    vectors = dict(zip(live, (at.inputs[slot.name] for slot in at.op.inputs[len(at.op.of.inputs) :]), strict=True))
    found = derivatives.forward(at).run()
    products = derivatives.hvp(base, live, dys, vectors, batched=False).run()
    slots = derivatives.second_order_values(base, dys, vectors).run()
    of_x, of_dy = list(found.values())[: len(live)], list(found.values())[len(live) :]
    for name, value in zip(live, of_x, strict=True):
        assert same(value, products[name])
    for name, value in zip(outputs, of_dy, strict=True):
        assert same(np.zeros_like(dys[name]) if isinstance(value, Absent) else value, slots["slots", name])


def same(one: Any, other: Any) -> bool:
    return one == other if isinstance(one, Absent) else np.array_equal(one, other, equal_nan=True)
