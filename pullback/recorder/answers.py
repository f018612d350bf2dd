"""Whether an application got the derivative that the server has at its inputs, by the linearity of derivatives.

To ask again shows nothing: a cache that answered with the derivative at another point does so again. The derivative
along a vector v is that along v + r minus that along r, which no cache has.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer
from pullback.gradcheck import floats
from pullback.gradcheck.calls import Requests
from pullback.gradcheck.function import Request, as_object, elements, member
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.of.openinference import DTYPES
from pullback.gradcheck.of.tesseract import decoded, encoded
from pullback.gradcheck.sample import ROUNDINGS, largest_of
from pullback.gradcheck.verdict import Finding
from pullback.recorder.repeats import arrays

CHECK = "answer"
PAIRS = 3
REQUESTS = 2 * PAIRS
"""The evaluations that the check takes."""
SCATTER = 1024
"""A derivative is another one if it is so many times as far from those of all pairs as these are apart."""
VECTORS: Mapping[str, str] = {
    **{"Gradient": "sens", "ApplyJacobian": "vec", "ApplyHessian": "vec"},
    **{"vector_jacobian_product": "cotangent_vector", "jacobian_vector_product": "tangent_vector"},
}
"""The member of a request in which its answer is linear, by call."""
DATA = re.compile(r"outputs\[\d+\]\.data")
Change = Callable[[Array, str], Array]
"""What becomes of a vector of a dtype."""


def parts_of(path: str, body: Any, outputs: Sequence[str], rng: np.random.Generator) -> list[Any]:
    """Return a recorded request with v + r, with r, with v + s, ... in place of its vectors v; none if it has none.

    ``outputs`` are those of the model, whose cotangents a request of an inference has. Raises ``ValueError``,
    ``TypeError`` or ``PullbackError`` for vectors that cannot be read.
    """
    return [part for _ in range(PAIRS) for part in _pair(path, body, outputs, rng)]


def _pair(path: str, body: Any, outputs: Sequence[str], rng: np.random.Generator) -> list[Any]:
    drawn: list[Array] = []

    def add(v: Array, dtype: str) -> Array:
        r = rng.uniform(0.25, 1.0, v.shape) * rng.choice([-1.0, 1.0], v.shape)
        found = _rounded(v + r * (largest_of(v) or 1.0), dtype)
        drawn.append(_rounded(found - v, dtype))
        return found

    both = _changed(path, body, outputs, add)
    left = iter(drawn)
    return [both, _changed(path, body, outputs, lambda v, dtype: next(left))] if drawn else []


def answered(before: Any, parts: Sequence[Any], comparison: Comparison, requests: Sequence[Request]) -> Finding:
    """Return the finding on a recorded answer, beside those to all parts of its request.

    The first of the ``requests`` is the recorded one, and the others are its parts. The dtype of the comparison is the
    narrowest of the model.
    """
    recorded, *others = (dict(_derivatives(each)) for each in (before, *parts))
    shapes, *found = ({path: x.shape for path, x in each.items()} for each in (recorded, *others))
    if any(each != shapes for each in found):
        sentence = "the server answers a recorded request with another vector with other arrays"
        return Finding(comparison.subject, "fail", sentence)
    calls = Requests(requests[:3], "the first answer, and the second minus the third is right,")
    for path, got in recorded.items():
        with_r = np.stack([each[path] for each in others])
        derivatives = with_r[::2] - with_r[1::2]
        rounding = ROUNDINGS * floats.eps(comparison.subject.dtype) * max(largest_of(with_r), largest_of(got))
        bar = np.full(got.shape, SCATTER * largest_of(np.ptp(derivatives, axis=0)) + rounding)
        comparison.add(got, derivatives.mean(axis=0), bar, key=("outputs", path or "answer"), calls=_always(calls))
    return comparison.finding("the recorded derivative", "what other vectors show by linearity")


def _derivatives(answer: Any) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of an answer that are linear in its vectors, without what else an inference has."""
    is_inference = "outputs" in (as_object(answer) or {})
    return ((path, x) for path, x in arrays(answer) if not is_inference or DATA.fullmatch(path))


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
