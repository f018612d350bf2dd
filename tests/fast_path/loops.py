"""Loops of requests that differ only in their numbers: every form, operation, dtype and shape, and every kind of op."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ops import Op, discover
from tests.fast_path.forms import NATIVE, PROTOCOLS, Form, in_base64, in_safetensors, lists, typed

OPS = discover().ops
DTYPES = ("float32", "float64")
# The most numbers that may share a call.
SHARED = 1 << 14
OPERATIONS = ("vjp", "forward", "jvp", "hvp", "gradients")
TAGS = itertools.count()
# A writer may convert results: numbers that are exact in both dtypes have the same text either way.
ROUND = (0.5, -0.25, 1.0, 2.0, -3.0, 1024.0, 0.0)
RAGGED = (0.1, -0.7, 1 / 3, -2.6, 3.3, 0.7000001)
EDGES = (
    *(0.1, 0.7, -1 / 3, 1e-7, -1e-30, 1e15, 123456.789, 16777217.0, -0.0, 0.0, 1.0, -2.0, 5e-324, 1.4e-45, -1e-40),
    *(1.1754944e-38, 3.4028234663852886e38, 1e38, -1e19, 1e22, 2.0**53 + 2, 0.30000000000000004, 7.038531e-26),
)
Numbers = Callable[[int, tuple[int, ...]], np.ndarray]
"""Returns numbers of a shape, which the first argument changes."""


def any_numbers(count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers none of which is an integer."""
    return np.random.default_rng(count).uniform(-3, 3, shape)


def of(numbers: tuple[float, ...]) -> Numbers:
    return lambda count, shape: np.resize(np.roll(numbers, -count), shape)


Draw = Callable[[int, Numbers], Mapping[str, np.ndarray]]


def entropy(count: int, numbers: Numbers) -> Mapping[str, np.ndarray]:
    return {"logits": numbers(count, (2, 3)), "labels": np.random.default_rng(count).integers(0, 3, 2, np.int32)}


def symmetric(count: int, numbers: Numbers) -> Mapping[str, np.ndarray]:
    a = numbers(count, (3, 3))
    return {"a": a + a.T}


FEATURES = np.arange(18.0).reshape(1, 3, 3, 2)


def regions(count: int, numbers: Numbers) -> Mapping[str, np.ndarray]:
    """Return two regions of features that all requests have, or of other ones."""
    rng = np.random.default_rng(count)
    corners = np.sort(rng.integers(0, 3, (2, 2, 2)), axis=1).reshape(2, 4)
    rois = np.concatenate([np.zeros((2, 1)), corners], axis=1)
    return {"features": FEATURES if rng.random() < 0.5 else FEATURES * rng.uniform(-1, 1), "rois": rois}


def convolution(count: int, numbers: Numbers) -> Mapping[str, np.ndarray]:
    return {"x": numbers(count, (1, 3, 4, 1)), "f": np.array([[[[1.0, 1]], [[-1, 1]]], [[[1, -1]], [[-1, -1]]]])}


def one(shape: tuple[int, ...]) -> Draw:
    return lambda count, numbers: {"x": numbers(count, shape)}


# Rows that share a call, and whole calls.
OTHERS: Mapping[str, tuple[Draw, Mapping[str, Any]]] = {
    "safe_norm": (one((2, 3)), {}),
    "softmax_cross_entropy": (entropy, {}),
    "self_adjoint_eig": (symmetric, {}),
    "conv_eig": (convolution, {}),
    "roi_pool": (regions, {"pooled_height": 2, "pooled_width": 2}),
    "zero_out": (one((5,)), {}),
    "relu": (one((5,)), {}),
    "clip_gradient": (one((4,)), {"by": "norm"}),
}


@dataclass
class Loop:
    """Requests for one operation of an op in a form; without ``names``, of an op of ``OTHERS``.

    ``names`` are those of the inputs and outputs, all of one shape; the first requests have numbers of ``first``.
    """

    form: Form
    operation: str
    op: str
    dtype: str = "float32"
    shape: tuple[int, ...] = (2, 3)
    first: Numbers = any_numbers
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    names: tuple[tuple[str, ...], tuple[str, ...]] | None = (("x",), ("y",))
    tag: str = field(default_factory=lambda: f"x-tag: loop {next(TAGS)}")

    def request(self, count: int, numbers: Numbers = any_numbers) -> bytes:
        with np.errstate(over="ignore"):
            tensors = self._of_others(count, numbers) if self.names is None else self._of_one_shape(count, numbers)
        return self.form(self.op, self.operation, tensors, self.dtype, self.tag, **self.fields)

    def _of_others(self, count: int, numbers: Numbers) -> dict[str, Mapping[str, np.ndarray]]:
        draw, _ = OTHERS[self.op]
        drawn = draw(count, numbers)
        return {"inputs": {name: x if x.dtype == np.int32 else x.astype(self.dtype) for name, x in drawn.items()}}

    def _of_one_shape(self, count: int, numbers: Numbers) -> dict[str, dict[str, np.ndarray]]:
        assert self.names
        inputs, outputs = self.names
        along = {"vjp": {"cotangents": outputs}, "jvp": {"tangents": inputs}}
        along["hvp"] = {"vectors": inputs, "cotangents": outputs}
        places = itertools.count(count, 10**6)
        return {
            field: {name: numbers(next(places), self.shape).astype(self.dtype) for name in names}
            for field, names in ({"inputs": inputs} | along.get(self.operation, {})).items()
        }


def _slots(op: Op) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(slot.name for slot in op.inputs), tuple(slot.name for slot in op.outputs)


PAIRED = (("x", "z"), ("p", "q"))
ELEMENTWISE = itertools.cycle([op for op in OPS.values() if op.batching_for(op.attrs()) == "elementwise"])
FIRST = itertools.cycle([of(ROUND), of(RAGGED), any_numbers])
DTYPE = itertools.cycle(DTYPES)


def _loops() -> Iterator[tuple[str, Loop]]:
    """Yield each pair of a form and an operation; dtypes, ops and first numbers take turns."""
    for (name, form), operation in itertools.product(NATIVE.items(), OPERATIONS):
        op = next(ELEMENTWISE) if operation in ("vjp", "forward", "gradients") else OPS["log1pexp"]
        yield f"{name} {operation}", Loop(form, operation, op.name, next(DTYPE), first=next(FIRST), names=_slots(op))
    for name, (form, operations) in PROTOCOLS.items():
        for operation, dtype in itertools.product(operations, DTYPES):
            op = "square" if dtype == "float32" else "log1pexp"  # squares of large numbers are infinite
            yield f"{name} {operation} {dtype}", Loop(form, operation, op, dtype, (4,), next(FIRST))
        yield f"{name} paired", Loop(form, "forward", "paired", next(DTYPE), (4,), names=PAIRED)
    shapes = ((1,), (1, 1), (7,), (3, 1), (2, 2, 2), (300,), (1500,), (30, 50))
    for shape, encoding in zip(shapes, itertools.cycle(["nested", "flat", "base64"]), strict=False):
        fields = {"encoding": encoding, "outputs": True}
        yield f"{shape} {encoding}", Loop(lists, "vjp", "square", "float32", shape, next(FIRST), fields)
    yield "() base64", Loop(typed, "vjp", "square", shape=(), fields={"encoding": "base64"})
    for order in (2, 3, 4):
        yield f"order {order}", Loop(lists, "gradients", "log1pexp", "float64", (3,), fields={"order": order})
    forms = itertools.cycle(NATIVE.values())
    for op, (_, attrs) in OTHERS.items():
        for operation in ("vjp", "gradients" if op < "s" else "forward"):
            yield f"{op} {operation}", Loop(next(forms), operation, op, fields={"attrs": attrs}, names=None)
        binary, _ = PROTOCOLS["inference in binary" if op < "s" else "inference"]
        yield f"{op} inference", Loop(binary, "forward", op, fields={"attrs": attrs}, names=None)
    for form in NATIVE.values():
        fields = {"attrs": {"a": -0.75}, "outputs": True}
        yield f"{form.__name__} paired", Loop(form, "vjp", "paired", "float64", (4,), fields=fields, names=PAIRED)
    yield "wrt", Loop(lists, "vjp", "paired", fields={"wrt": ["z"]}, names=(("x", "z"), ("p",)))
    for op, names in (
        ("log1pexp.vjp", (("x", "dy"), ("dx",))),
        ("log1pexp.jvp", (("x", "tx"), ("ty",))),
        ("square.vjp.vjp", (("x", "dy", "ddx"), ())),
        ("zero_out.vjp", (("x", "dy"), ())),
    ):
        yield op, Loop(lists, "gradients", op, shape=(3,), names=names)
    for form in (in_base64, in_safetensors):
        yield (
            f"{form.__name__} longest",
            Loop(form, "vjp", "square", "float64", (SHARED,), fields={"encoding": "base64"}),
        )


LOOPS: Mapping[str, Loop] = dict(_loops())
