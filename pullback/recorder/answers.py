"""Whether the answers of a server to an application were right, as far as others of its answers tell."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument, PullbackError
from pullback.gradcheck import floats
from pullback.gradcheck.function import LARGEST_TOLERANCE, Request, as_object, elements, member
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.of.json_server import JsonServer
from pullback.gradcheck.of.openinference import DTYPES
from pullback.gradcheck.of.tesseract import ENCODED, decoded, encoded
from pullback.gradcheck.reproduction import Requests
from pullback.gradcheck.sample import ROUNDINGS, largest_of
from pullback.gradcheck.verdict import Finding, Subject

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
MAX_DEPTH = 32


# To ask again shows nothing: a cache that answered with the derivative at another point does so again. The derivative
# along a vector v is that along v + r minus that along r, which no cache has.
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


def repeated(before: Any, now: Any, protocol: str, tolerances: Tolerances) -> Finding:
    """Return the finding on two answers to one request, as JSON has them."""
    subject = Subject("repeat", None, None, None, protocol, "float64")
    first, second = dict(arrays(before)), dict(arrays(now))
    shapes, found = ({path: x.shape for path, x in each.items()} for each in (first, second))
    if shapes != found:
        changed = sorted(path for path in shapes.keys() | found if shapes.get(path) != found.get(path))[0]
        what = f"{changed or 'the answer'} had shape {shapes.get(changed)}, and has {found.get(changed)} now"
        return Finding(subject, "fail", f"the server answers a recorded request with other arrays: {what}")
    comparison = Comparison(subject, tolerances)
    for path, y in second.items():
        allowed = np.array(LARGEST_TOLERANCE * largest_of(first[path]))
        comparison.add(y, first[path], allowed, key=("outputs", path or "answer"))
    return comparison.finding("the answer to a recorded request, asked again,", "the recorded answer")


def arrays(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Array]]:
    """Yield the arrays in an answer, each with its path; text and flags are none."""
    found = as_object(value)
    if depth > MAX_DEPTH:
        return
    if found is not None and found.keys() >= ENCODED and as_object(found["data"]) is not None:
        try:
            yield path, np.asarray(decoded(value, path), np.float64)
        except (ValueError, TypeError, BadArgument):
            yield path, np.zeros(0)
    elif found is not None:
        for name, each in found.items():
            yield from arrays(each, f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list):
        try:
            array = np.asarray(cast(list[Any], value))
        except ValueError:
            array = None
        if array is not None and array.dtype.kind in "fiu":
            yield path, array.astype(np.float64)
            return
        for i, each in enumerate(cast(list[Any], value)):
            yield from arrays(each, f"{path}[{i}]", depth + 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, np.asarray(value, np.float64)


@dataclass(frozen=True)
class Reply:
    """A request, and the text of its answer. ``ask`` waits until the server may be asked."""

    protocol: str
    server: JsonServer
    path: str
    body: Any
    answer: str
    tolerances: Tolerances
    ask: Callable[[], None]

    def repeat(self) -> Finding:
        """Ask again: the same numbers."""

        def found(before: Any, now: list[Any]) -> Finding:
            return repeated(before, now[0], self.protocol, self.tolerances)

        return self._compared(CHECK, [self.body], found)

    def judge(self, parts: Sequence[Any], dtype: str) -> Finding:
        """Ask for all parts of a derivative of a dtype: they show what should have been answered."""

        def found(before: Any, now: list[Any]) -> Finding:
            url = f"{self.server.url}{self.path}"
            requests = [Request(url, body, "the answer") for body in (self.body, *parts)]
            subject = Subject(CHECK, None, None, None, self.protocol, dtype)
            return answered(before, now, Comparison(subject, self.tolerances), requests)

        return self._compared(CHECK, parts, found)

    def _compared(self, check: str, bodies: Sequence[Any], found: Callable[[Any, list[Any]], Finding]) -> Finding:
        subject = Subject(check, None, None, None, self.protocol, "float64")
        try:
            before = json.loads(self.answer)
        except (ValueError, RecursionError) as error:
            return Finding(subject, "skipped", f"not run: the recorded answer is no JSON ({error})")
        now = list[Any]()
        try:
            for body in bodies:
                self.ask()
                now.append(self.server.post(self.path, body))
        except PullbackError as error:
            verdict = "fail" if isinstance(error, BadAnswer) else "error"
            return Finding(subject, verdict, f"a request that the server answered before is not answered: {error}")
        return found(before, now)
