"""Reproduction: the ``pullback call`` that returns a number of a check, and where its answer has the number."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import Absent, jvp
from app.autodiff.point import Arrays, Point
from app.errors import PullbackError
from app.gradcheck.sample import Sample
from app.runtime.modes import Key
from ops import Array, Mode

Index: TypeAlias = tuple[int, ...]

OPERATIONS: Mapping[str, tuple[str, str]] = {
    "outputs": ("forward", "outputs"),
    "gradients": ("vjp", "gradients"),
    "products": ("hvp", "products"),
    "slots": ("jvp", "tangents"),
}
"""The operation that returns each kind of value, and its field in the answer."""
DIRECTIONS: Mapping[str, tuple[str, ...]] = {
    "forward": (),
    "vjp": ("cotangents",),
    "hvp": ("cotangents", "vectors"),
    "jvp": ("tangents",),
}
PREFIXES = {"inputs": "", "attrs": "", "cotangents": "d", "vectors": "v", "tangents": "t"}
# The most numbers of a field on a command line, and in the words beside it; and the most for which an elementwise op is
# not called with one element alone.
MOST, MOST_IN_WORDS, MOST_ELEMENTS = 64, 16, 8
# How far the number of a call may be off, as a fraction, to be the number of the check.
SAME = 1e-6


class Reproduction(NamedTuple):
    """A command line, or words if there is none, and what in its answer is the number."""

    command: str
    shows: str | None


@dataclass(frozen=True, eq=False)
class Call:
    """A call at a point, and the number in its answer.

    The number is an element of the result ``key``, at ``position``, or the sum of the results ``times`` some weights.
    ``index`` is its index in the result if that of the comparison is another. If ``needs_all``, the other elements of
    an elementwise op matter too. ``words`` stand for a call that no operation answers.
    """

    point: Point
    key: Key
    cotangents: Arrays = field(default_factory=dict[str, Array])
    vectors: Arrays = field(default_factory=dict[str, Array])
    position: int = 0
    index: Index | None = None
    times: Arrays = field(default_factory=dict[str, Array])
    needs_all: bool = False
    words: str = ""

    def reproduction(self, index: Index | None, number: float) -> Reproduction:
        """Return how to reproduce the number, which has this ``index`` in the comparison."""
        if self.words:
            return Reproduction(self.words, None)
        index, call = self.index or index, self
        size = max((x.size for x in self.point.inputs.values()), default=0)
        is_elementwise = self.point.op.batching == "elementwise" and not self.needs_all
        if is_elementwise and index is not None and size > MOST_ELEMENTS:
            call, index = self._element(), ()
        if (count := call._count) > MOST:
            operation = OPERATIONS[str(self.key[0])][0]
            words = f"call {operation} at the checked point, which has too many numbers for a command line ({count})"
            return Reproduction(words, self._shows(index))
        if self.key[0] == "slots" and not call._is_tangent(index, number):
            return Reproduction("no operation returns this number: jvp, which takes no dy, gives another", None)
        return Reproduction(" ".join(call._words()), call._shows(index))

    def _element(self) -> "Call":
        """Return the call at one element."""
        inputs, dys, vectors, times = (
            {name: x.ravel()[self.position] for name, x in named.items()}
            for named in (self.point.inputs, self.cotangents, self.vectors, self.times)
        )
        point = moved(self.point, {name: np.asarray(x) for name, x in inputs.items()})
        return replace(self, point=point, cotangents=dys, vectors=vectors, times=times)

    @property
    def _operation(self) -> str:
        return OPERATIONS[str(self.key[0])][0]

    @property
    def _fields(self) -> dict[str, Arrays]:
        """The tensors of the call by field."""
        directions = {"cotangents": self.cotangents, "vectors": self.vectors, "tangents": self.vectors}
        return {"inputs": self.point.inputs} | {name: directions[name] for name in DIRECTIONS[self._operation]}

    @property
    def _count(self) -> int:
        """The size of the largest field in numbers."""
        return max(sum(np.size(x) for x in named.values()) for named in self._fields.values())

    def _words(self) -> Iterator[str]:
        spec = self.point.spec
        yield from ("pullback", "call", spec.op.name, self._operation)
        slots = {"inputs": spec.inputs.dtypes, "attrs": type(spec.attrs).model_fields}
        slots |= dict.fromkeys(("vectors", "tangents"), spec.inputs.dtypes) | {"cotangents": spec.outputs.dtypes}
        fields = ("inputs", "attrs", *DIRECTIONS[self._operation])
        taken = Counter(prefix + slot for place in fields for prefix in _prefixes(place) for slot in slots[place])

        def named(place: str, slot: str) -> str:
            short = PREFIXES[place] + slot
            return short if taken[short] == 1 else f"{place}.{slot}"

        for place, tensors in self._fields.items():
            for slot, x in tensors.items():
                yield shlex.quote(f"{named(place, slot)}={_tensor(np.asarray(x))}")
        for name, value in spec.attrs.model_dump().items():
            if value != type(spec.attrs).model_fields[name].default:
                yield shlex.quote(f"{named('attrs', name)}={value if isinstance(value, str) else json.dumps(value)}")
        yield from ("--dtype", spec.dtype, "--mode", spec.mode)
        # The command line omits the CPU, where a service without a GPU runs, and writes gpu:0 for /device:GPU:0.
        device = spec.device.removeprefix("/device:").lower()
        yield from () if device.startswith("cpu") else ("--device", device)

    def _shows(self, index: Index | None) -> str:
        """Return the place of the number in the answer."""
        result = OPERATIONS[str(self.key[0])][1]
        if not self.times:
            return f"{result}.{self.key[1]}" + (f"[{', '.join(map(str, index))}]" if index else "")
        return " + ".join(_product(f"{result}.{name}", np.asarray(w)) for name, w in self.times.items())

    def _is_tangent(self, index: Index | None, number: float) -> bool:
        """Tell whether operation jvp, which takes no dy, returns the number of a slot."""
        with suppress(PullbackError):
            tangents = {name: np.asarray(v) for name, v in self.vectors.items()}
            found = jvp(self.point, tangents, batched=False).run()
            ys = {name: np.asarray(y, np.float64) for name, y in found.items() if not isinstance(y, Absent)}
            if self.times and self.times.keys() <= ys.keys():
                here = sum(float(np.sum(ys[name] * w)) for name, w in self.times.items())
            elif not self.times and self.key[1] in ys:
                here = float(ys[self.key[1]][index or ()])
            else:
                return False
            return bool(np.isclose(here, number, rtol=SAME, atol=0, equal_nan=True))
        return False


Calls: TypeAlias = Callable[[int], Call]
"""The call for each position in a comparison."""


def calls(sample: Sample, key: Key, **changes: Any) -> Calls:
    """Return the calls for the numbers of a value of a sample; ``changes`` are fields of ``Call``."""
    call = replace(Call(sample.point, key, sample.cotangents, sample.vectors), **changes)
    return lambda i: replace(call, position=i)


def along_directions(some: Calls, directions: Array) -> Calls:
    """Return the calls for the sums of a result along directions, one for each position."""
    return lambda i: replace(some(i), times={str(some(i).key[1]): directions[i]})


def elsewhere(point: Point, *, mode: Mode, dtype: str, device: str | None = None) -> Point:
    """Return a point that is called in another mode and dtype, with the same numbers."""
    return replace(point, spec=replace(point.spec, mode=mode, dtype=dtype, device=device or point.spec.device))


def _prefixes(place: str) -> tuple[str, ...]:
    """Return the prefixes of a field on the command line; a vector has two."""
    return ("v", "dd") if place == "vectors" else (PREFIXES[place],)


def _tensor(x: Array) -> str:
    """Return a tensor as the command line reads it, exactly."""
    values: Any = x.tolist() if x.dtype.kind in "iub" else np.asarray(x, np.float64).tolist()
    if x.ndim == 0:
        return _number(values)
    if x.ndim == 1 and x.size:
        return ",".join(map(_number, values)) + ("," if x.size == 1 else "")
    return json.dumps(values, separators=(",", ":"))


def _number(value: float) -> str:
    return json.dumps(value) if isinstance(value, bool) else repr(value)


def _product(result: str, weights: Array) -> str:
    wide = np.asarray(weights, np.float64)
    if not wide.ndim:
        return f"{result} * {float(wide)!r}"
    if wide.size > MOST_IN_WORDS:
        return f"the sum of {result} times random numbers"
    return f"the sum of {result} * {json.dumps(wide.tolist())}"
