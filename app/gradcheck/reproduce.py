"""Reproduction: the ``pullback call`` that returns a number of a check, and where its answer has the number."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from app.autodiff.absent import Absent
from app.autodiff.binding import moved
from app.autodiff.derivatives import jvp
from app.autodiff.point import Arrays, Point
from app.errors import PullbackError
from app.gradcheck.sample import Sample
from app.runtime.modes import Key
from ops import Array
from pullback.gradcheck.reproduction import POINT_FILE, Index, Reproduction

OPERATIONS: Mapping[str | int, tuple[str, str, tuple[str, ...]]] = {
    "outputs": ("forward", "outputs", ()),
    "gradients": ("vjp", "gradients", ("cotangents",)),
    "products": ("hvp", "products", ("cotangents", "vectors")),
    "slots": ("jvp", "tangents", ("tangents",)),
}
"""The operation that returns each kind of value, its field in the answer, and its fields besides the inputs."""
PREFIXES = {"inputs": ("",), "attrs": ("",), "cotangents": ("d",), "vectors": ("v", "dd"), "tangents": ("t",)}
"""The prefixes of the names in a field on the command line; the first is written."""
# The most numbers of a field on a command line, of all fields in a report, and in the text beside a command; and the
# most for which an elementwise op is not called with one element alone.
MAX_NUMBERS, MAX_POINT, MAX_WEIGHTS, MAX_ELEMENTS = 64, 1 << 18, 16, 8
# How far the number of a call may be off, as a fraction, to be the number of the check.
SAME_NUMBER = 1e-6


@dataclass(frozen=True, eq=False)
class Call:
    """A call at a point, and the number in its answer.

    The number is an element of the result ``key``, at ``position``, or the sum of the results ``times`` some weights.
    ``index`` is its index in the result if that of the comparison is another. If ``needs_all``, the other elements of
    an elementwise op matter too. ``explanation`` stands for a call that no operation answers.
    """

    point: Point
    key: Key
    cotangents: Arrays = field(default_factory=dict[str, Array])
    vectors: Arrays = field(default_factory=dict[str, Array])
    position: int = 0
    index: Index | None = None
    times: Arrays = field(default_factory=dict[str, Array])
    needs_all: bool = False
    explanation: str = ""

    def reproduction(self, index: Index | None, number: float) -> Reproduction:
        """Return how to reproduce the number, which has this ``index`` in the comparison."""
        if self.explanation:
            return Reproduction(self.explanation, None)
        index, call = self.index or index, self
        size = max((x.size for x in self.point.inputs.values()), default=0)
        is_elementwise = self.point.spec.batching == "elementwise" and not self.needs_all
        if is_elementwise and index is not None and size > MAX_ELEMENTS:
            inputs, dys, vectors, times = (
                {name: np.asarray(x.ravel()[self.position]) for name, x in named.items()}
                for named in (self.point.inputs, self.cotangents, self.vectors, self.times)
            )
            call = replace(self, point=moved(self.point, inputs), cotangents=dys, vectors=vectors, times=times)
            index = ()
        count = sum(x.size for named in call._fields.values() for x in named.values())
        if count > MAX_POINT:
            place = f"at the checked point, which has too many numbers for a report ({count} of at most {MAX_POINT})"
            return Reproduction(f"call {OPERATIONS[self.key[0]][0]} {place}", self._shows(index))
        if self.key[0] == "slots" and not call._is_tangent(index, number):
            return Reproduction("no operation returns this number: jvp, which takes no dy, gives another", None)
        point = {name: {slot: _wide(x).tolist() for slot, x in named.items()} for name, named in call._fields.items()}
        is_long = max(sum(x.size for x in named.values()) for named in call._fields.values()) > MAX_NUMBERS
        command = " ".join(call._arguments(is_long=is_long))
        return Reproduction(command, call._shows(index), point, self._directions)

    @property
    def _fields(self) -> dict[str, Arrays]:
        """The tensors of the call by field."""
        directions = {"cotangents": self.cotangents, "vectors": self.vectors, "tangents": self.vectors}
        return {"inputs": self.point.inputs} | {name: directions[name] for name in OPERATIONS[self.key[0]][2]}

    @property
    def _directions(self) -> dict[str, float]:
        """The cotangent and the vectors at the number, by name, none if one of them has more numbers."""
        wanted = {
            PREFIXES[field][0] + slot: np.ravel(_wide(x))
            for field, named in self._fields.items()
            for slot, x in named.items()
            if field != "inputs"
        }
        is_elementwise = self.point.spec.batching == "elementwise" and self.index is None and not self.times
        if not all(x.size == 1 or (is_elementwise and self.position < x.size) for x in wanted.values()):
            return {}
        return {name: float(x[self.position if x.size > 1 else 0]) for name, x in wanted.items()}

    def _arguments(self, *, is_long: bool) -> Iterator[str]:
        """Yield the command line; a point that ``is_long`` is in a file."""
        spec, (operation, _, directions) = self.point.spec, OPERATIONS[self.key[0]]
        yield from ("pullback", "call", spec.op.name, operation)
        slots = {"inputs": spec.inputs.dtypes, "attrs": type(spec.attrs).model_fields}
        slots |= dict.fromkeys(("vectors", "tangents"), spec.inputs.dtypes) | {"cotangents": spec.outputs.dtypes}
        taken = Counter(
            prefix + slot
            for name in ("inputs", "attrs", *directions)
            for prefix in PREFIXES[name]
            for slot in slots[name]
        )

        def argument(field: str, slot: str, value: str) -> str:
            short = PREFIXES[field][0] + slot
            return shlex.quote(f"{short if taken[short] == 1 else f'{field}.{slot}'}={value}")

        if is_long:
            yield POINT_FILE
        for name, tensors in self._fields.items() if not is_long else ():
            yield from (argument(name, slot, _tensor(x)) for slot, x in tensors.items())
        for slot, value in spec.attrs.model_dump().items():
            if value != type(spec.attrs).model_fields[slot].default:
                yield argument("attrs", slot, value if isinstance(value, str) else json.dumps(value))
        yield from ("--dtype", spec.op.shown_dtype(spec.dtype), "--mode", spec.mode)
        # The command line omits the CPU, where a service without a GPU runs, and writes gpu:0 for /device:GPU:0.
        device = spec.device.removeprefix("/device:").lower()
        yield from () if device.startswith("cpu") else ("--device", device)

    def _shows(self, index: Index | None) -> str:
        """Return what in the answer is the number."""
        result = OPERATIONS[self.key[0]][1]
        if not self.times:
            return f"{result}.{self.key[1]}" + (f"[{', '.join(map(str, index))}]" if index else "")
        return " + ".join(_product(f"{result}.{name}", np.asarray(w)) for name, w in self.times.items())

    def _is_tangent(self, index: Index | None, number: float) -> bool:
        """Return whether operation jvp, which takes no dy, returns the number of a slot."""
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
            return bool(np.isclose(here, number, rtol=SAME_NUMBER, atol=0, equal_nan=True))
        return False


Calls: TypeAlias = Callable[[int], Call]
"""The call for each position in a comparison."""


def calls(sample: Sample, key: Key, **changes: Any) -> Calls:
    """Return the calls for the numbers of a value of a sample; ``changes`` are fields of ``Call``."""
    call = replace(Call(sample.point, key, sample.cotangents, sample.vectors), **changes)
    return lambda i: replace(call, position=i)


def _wide(x: Array) -> Array:
    """Return a tensor whose numbers Python has: floats in float64."""
    x = np.asarray(x)
    return x if x.dtype.kind in "iub" else np.asarray(x, np.float64)


def _tensor(x: Array) -> str:
    """Return a tensor as the command line reads it, exactly."""
    wide = _wide(x)
    if x.ndim > 1 or not x.size:
        return json.dumps(wide.tolist(), separators=(",", ":"))
    texts = [json.dumps(value) if isinstance(value, bool) else repr(value) for value in wide.ravel().tolist()]
    return ",".join(texts) + ("," if x.shape == (1,) else "")


def _product(result: str, weights: Array) -> str:
    wide = np.asarray(weights, np.float64)
    if not wide.ndim:
        return f"{result} * {float(wide)!r}"
    if wide.size > MAX_WEIGHTS:
        return f"the sum of {result} times random numbers"
    return f"the sum of {result} * {json.dumps(wide.tolist())}"
