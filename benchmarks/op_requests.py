"""The requests of ``benchmarks.ops``: random points of each case, in the formats of both servers, and their answers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from benchmarks.candidates import Request, rounded
from benchmarks.op_cases import Case
from benchmarks.op_gradients import Array, Shape, eigenpairs

DRAWS = 100
# Two computations in float32 differ by rounding, which close eigenvalues amplify.
TOLERANCE = 1e-4
# Nearer than this, two eigenvalues, or the two largest components of an eigenvector, are too close for float32.
APART = 0.02


@dataclass(frozen=True)
class Point:
    """The inputs and cotangents of a request."""

    case: Case
    inputs: Mapping[str, Array]
    cotangents: Mapping[str, Array]

    @property
    def parameters(self) -> list[Array]:
        """The inputs as UM-Bridge has them: all variables in one vector, then the constants."""
        first = np.concatenate([self.inputs[name].ravel() for name in self.case.variables])
        return [first, *(self.inputs[name].ravel() for name in self.case.constants)]

    @property
    def sens(self) -> Array:
        """The cotangents in one vector."""
        return np.concatenate([dy.ravel() for dy in self.cotangents.values()])

    def is_gradient(self, found: Array) -> bool:
        """Return whether these are its gradients in one vector, except for rounding."""
        expected = self.case.flat_gradient(self.parameters, self.sens)
        bound = TOLERANCE * float(np.abs(expected).max())
        return found.shape == expected.shape and float(np.abs(found - expected).max()) <= bound


def points(case: Case, count: int = DRAWS) -> Iterator[Point]:
    """Yield random points, always the same ones; a load must not repeat one body."""
    for draw in range(count):
        rng = np.random.default_rng((case.numbers, draw))
        inputs = {name: DRAWN.get(name, normal)(rng, shape, case) for name, shape in case.inputs.items()}
        cotangents = {name: rounded(rng, 1, shape) for name, shape in case.cotangents.items()}
        yield Point(case, inputs, cotangents)


def normal(rng: np.random.Generator, shape: Shape, case: Case) -> Array:
    """Draw normal numbers."""
    del case
    return rounded(rng, 3, shape)


def labels(rng: np.random.Generator, shape: Shape, case: Case) -> Array:
    """Draw a class for each row of logits."""
    return rng.integers(0, case.inputs["logits"][-1], shape, dtype=np.int32)


def rois(rng: np.random.Generator, shape: Shape, case: Case) -> Array:
    """Draw regions (0, x1, y1, x2, y2) of the image, in cells."""
    _, height, width, _ = case.inputs["features"]
    corners = np.sort(rng.uniform((0, 0), (width, height), (shape[0], 2, 2)), axis=1).reshape(shape[0], 4)
    return np.concatenate([np.zeros((shape[0], 1)), np.round(corners, 2)], axis=1).astype(np.float32)


def matrices(rng: np.random.Generator, shape: Shape, case: Case) -> Array:
    """Draw symmetric matrices with different eigenvalues, and eigenvectors whose signs are certain."""
    if case.op != "self_adjoint_eig":
        return normal(rng, shape, case)
    found = list[Array]()
    while len(found) < np.prod(shape[:-2], dtype=int):
        a = rounded(rng, 3, shape[-2:])
        a = np.tril(a) + np.tril(a, -1).T
        w, v = eigenpairs(a)
        size = np.sort(np.abs(v), axis=0)
        if min(np.diff(w).min(), (size[-1] - size[-2]).min()) > APART:
            found.append(a)
    return np.reshape(found, shape)


def divisors(rng: np.random.Generator, shape: Shape, case: Case) -> Array:
    """Draw numbers that are not near 0 where the op divides by them."""
    drawn = normal(rng, shape, case)
    return drawn + np.copysign(np.float32(1), drawn) if case.op == "divide" else drawn


DRAWN: dict[str, Callable[[np.random.Generator, Shape, Case], Array]] = {
    "labels": labels,
    "rois": rois,
    "a": matrices,
    "b": divisors,
}
"""How to draw inputs that are not any numbers, by name."""


def pullback(point: Point) -> Request:
    """The inputs by name; attributes only where they are not the default."""
    attrs = {"attrs": point.case.attrs} if point.case.attrs else {}
    document = {"inputs": point.inputs, **attrs, "cotangents": point.cotangents}
    return _json(f"/v1/ops/{point.case.op}/vjp", document)


def _pullback_gradients(case: Case, answer: bytes) -> Array:
    gradients = orjson.loads(answer)["gradients"]
    return np.concatenate([np.ravel(gradients[name]["data"]) for name in case.variables])


def umbridge(point: Point) -> Request:
    """Flat lists, for a model that knows their shapes."""
    document = {"name": point.case.name, "outWrt": 0, "inWrt": 0, "input": point.parameters, "sens": point.sens}
    return _json("/Gradient", document)


def _umbridge_gradients(case: Case, answer: bytes) -> Array:
    del case
    return np.asarray(orjson.loads(answer)["output"])


def _json(path: str, document: Any) -> Request:
    body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return Request(path, {"Content-Type": "application/json"}, body)


class Format(NamedTuple):
    """The request for a point, and the reader of all its gradients, in one vector, from the response."""

    request: Callable[[Point], Request]
    gradients: Callable[[Case, bytes], Array]


OURS, PEER = "pullback", "umbridge_ops"
FORMATS = {OURS: Format(pullback, _pullback_gradients), PEER: Format(umbridge, _umbridge_gradients)}
"""The formats by the names of the servers."""
