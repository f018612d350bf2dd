"""Whether an application got the derivative that the server has at its inputs, by the linearity of derivatives.

To ask again shows nothing: a cache that answered with the derivative at another point does so again. The derivative
along a vector v is that along v + r minus that along r, which no cache has.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Finding
from pullback.recorder.repeats import arrays
from pullback.server_checks.model import Request, as_object, elements, member
from pullback.server_checks.openinference import DTYPES
from pullback.server_checks.reproduction import Requests
from pullback.server_checks.sample import LARGEST_TOLERANCE, RATIO, largest_of
from pullback.server_checks.tesseract import decoded, encoded

CHECK = "answer"
REQUESTS = 2
"""The evaluations that the check takes."""
HESSIAN = "ApplyHessian"
VECTORS: Mapping[str, str] = {
    **{"Gradient": "sens", "ApplyJacobian": "vec", HESSIAN: "vec"},
    **{"vector_jacobian_product": "cotangent_vector", "jacobian_vector_product": "tangent_vector"},
}
"""The member of a request in which its answer is linear, by call."""
Change = Callable[[Array, str], Array]
"""What becomes of a vector of a dtype."""


class Parts(NamedTuple):
    """Two requests: the answer to ``both`` minus that to ``other`` is the answer to a recorded one."""

    both: Any
    other: Any


def parts_of(path: str, body: Any, outputs: Sequence[str], rng: np.random.Generator) -> Parts | None:
    """Return a recorded request with v + r and with r in place of its vectors v, ``None`` if it has none.

    ``outputs`` are those of the model, whose cotangents a request of an inference has. Raises ``ValueError``,
    ``TypeError`` or ``PullbackError`` for vectors that cannot be read.
    """
    drawn: list[Array] = []

    def add(v: Array, dtype: str) -> Array:
        r = 2.0 ** -rng.integers(0, 3, v.shape) * rng.choice([-1.0, 1.0], v.shape)
        found = _rounded(v + r * (largest_of(v) or 1.0), dtype)
        drawn.append(_rounded(found - v, dtype))
        return found

    both = _changed(path, body, outputs, add)
    left = iter(drawn)
    return Parts(both, _changed(path, body, outputs, lambda v, dtype: next(left))) if drawn else None


def answered(
    before: Any, parts: tuple[Any, Any], comparison: Comparison, requests: Sequence[Request], relative_bar: float
) -> Finding:
    """Return the finding on a recorded answer, beside those to both parts of its request.

    ``requests`` are all three. ``relative_bar`` is how far derivatives of the server may be off, relative to their
    largest number.
    """
    recorded, both, other = (dict(arrays(each)) for each in (before, *parts))
    shapes, *others = ({path: x.shape for path, x in each.items()} for each in (recorded, both, other))
    if any(each != shapes for each in others):
        sentence = "the server answers a recorded request with another vector with other arrays"
        return Finding(comparison.subject, "fail", sentence)
    calls = Requests(requests, "the first answer, and the second minus the third is right,")
    for path, got in recorded.items():
        expected, size = both[path] - other[path], max(map(largest_of, (got, both[path], other[path])))
        bar, apart = np.full(got.shape, RATIO * relative_bar * size), np.abs(got - expected)
        # The action of a Hessian may be made of finite differences.
        is_rough = requests[0].url.endswith(HESSIAN) & (apart > bar) & (apart <= LARGEST_TOLERANCE * size)
        status = np.where(is_rough, Status.TOLERANCE, Status.OK)
        comparison.add(got, expected, bar, status=status, key=("outputs", path or "answer"), calls=_always(calls))
    return comparison.finding("the recorded derivative", "by linearity, from those with two other vectors, it")


def _changed(path: str, body: Any, outputs: Sequence[str], change: Change) -> Any:
    """Return a request with its vectors changed."""
    name = VECTORS.get(path.rpartition("/")[2])
    if name is None:
        cotangents = {f"d{output}" for output in outputs}
        is_vjp = path.endswith(".vjp/infer")
        return {**body, "inputs": list(_tensors(body, cotangents, change))} if is_vjp else body
    vector = member(body, name, "the request")
    if (by_slot := as_object(vector)) is None:
        return {**body, name: change(np.asarray(vector, np.float64), "float64").tolist()}
    return {**body, name: {slot: _encoded(value, change) for slot, value in by_slot.items()}}


def _encoded(value: Any, change: Change) -> dict[str, Any]:
    """Return an array of a Tesseract's request, changed."""
    dtype = str((as_object(value) or {}).get("dtype", "float64"))
    return encoded(change(np.asarray(decoded(value, "the request"), np.float64), dtype), dtype)


def _tensors(body: Any, cotangents: set[str], change: Change) -> Iterator[Any]:
    """Yield the tensors of an inference, with the cotangents among them changed."""
    for tensor in elements(member(body, "inputs", "the request"), "the request"):
        if member(tensor, "name", "the request") not in cotangents:
            yield tensor
            continue
        dtype = DTYPES.get(member(tensor, "datatype", "the request"))
        if dtype is None:
            raise BadAnswer("expected cotangents of floats")
        numbers = np.asarray(member(tensor, "data", "the request"), np.float64).ravel()
        yield {**tensor, "data": change(numbers, dtype).tolist()}


def _rounded(x: Array, dtype: str) -> Array:
    return x.astype(dtype).astype(np.float64)


def _always(calls: Requests) -> Callable[[int], Requests]:
    return lambda _: calls
