"""Evaluations of ops with rows, at points and with directions of all numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from app.autodiff import derivatives
from app.autodiff.binding import bind
from app.autodiff.evaluation import Evaluation
from app.autodiff.padded_rows import PaddedRows
from app.autodiff.point import Point
from ops import Array, Input, Op, Tensor, discover
from tests.gradcheck.wrong.making import BOTH, rows

CPU = "/device:CPU:0"


REGISTRY = discover().ops


def point(op: Op, inputs: Mapping[str, Array], dtype: str = "", mode: str = "graph", attrs: Any = None) -> Point:
    def given(value: Any, kind: str, loc: Any) -> Array:
        return np.asarray(value, kind)

    run = {"device": CPU, "max_elements": 1 << 22}
    return bind(op, inputs, attrs or {}, dtype or op.dtypes[0], given, mode=mode, **run)


def evaluation(kind: str, at: Point, seed: int = 0) -> Evaluation[Any]:
    """Return an evaluation with directions that differ from number to number."""
    rng, side = np.random.default_rng(seed), at.spec.inputs
    wrt = tuple(name for name in side.differentiable if name not in at.op.shared)
    shapes = {name: at.output_shapes[name] or () for name in at.spec.outputs.differentiable}
    dys = {name: rng.uniform(0.5, 2, shape).astype(at.spec.outputs.dtypes[name]) for name, shape in shapes.items()}
    vectors = {name: rng.uniform(0.5, 2, at.inputs[name].shape).astype(side.dtypes[name]) for name in wrt}
    match kind:
        case "forward":
            return derivatives.forward(at)
        case "vjp":
            return derivatives.vjp(at, wrt, dys, batched=False, outputs=True)
        case "gradients":
            return derivatives.gradients(at, wrt, None, 2)
        case _:
            return derivatives.hvp(at, wrt, dys, vectors, batched=False)


def of_rows(one: Evaluation[Any]) -> PaddedRows:
    packing, _ = one.packed
    assert isinstance(packing, PaddedRows)
    return packing


CASES: Mapping[str, tuple[int, ...]] = {"safe_norm": (10,), "softmax_cross_entropy": (3,), "self_adjoint_eig": (4, 4)}


def some_rows(op: Op, shape: tuple[int, ...], count: int, rng: np.random.Generator) -> dict[str, Array]:
    x = rng.uniform(-3, 3, (count, *shape))
    labels = {"labels": rng.integers(0, shape[-1], count)} if op.name == "softmax_cross_entropy" else {}
    return {op.inputs[0].name: x, **labels}


def flat(found: Any) -> list[Array]:
    if isinstance(found, np.ndarray):
        return [found]
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else ()
    return [one for value in values for one in flat(value)]


def scaled(x: Tensor, table: Tensor) -> Tensor:
    return x * tf.reduce_sum(table)


SCALED = rows(
    scaled, None, inputs=[Input("x", BOTH, ("N", "M")), Input("table", BOTH, ("K",))], dtypes=BOTH, shared=("table",)
)


def centred(x: Tensor) -> Tensor:
    return x - tf.reduce_mean(x, axis=0)
