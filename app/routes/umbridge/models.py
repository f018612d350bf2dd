"""UM-Bridge's models: an op seen as a function of flat vectors, by what ``config`` says of it.

``config`` has ``shape`` (a list for the shape of every input, or an object with that of some), ``dtype`` and ``attrs``.
What it leaves out is as in the op's first example; the dtype is float64 where the op has it.
"""

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import orjson

from app.autodiff.binding import bind_dtype, bind_shapes, bind_spec
from app.autodiff.point import Side
from app.errors import Loc, NotFound, PullbackError, Unprocessable, near, unprocessable, wrong
from app.execution.engine import Engine
from app.requests.models import MAX_NAMES
from app.tensors.casting import describe
from app.tensors.dtypes import DTYPES
from app.tensors.json import read_shape
from ops import Input, Op, Output

Shape = tuple[int, ...]

CONFIG = ("shape", "dtype", "attrs")
# Settled models that are kept, and the longest config that is looked for among them.
KEPT, SHORT_CONFIG = 256, 1 << 12


class Vector(NamedTuple):
    """One vector of a model: the tensor that it is, laid flat, and whether derivatives reach that."""

    name: str
    dtype: str
    shape: Shape
    is_live: bool

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Model:
    """An op of which config has settled the attributes, the dtype and so the sizes."""

    op: Op
    attrs: Mapping[str, Any]
    dtype: str
    inputs: tuple[Vector, ...]
    outputs: tuple[Vector, ...]


class Models:
    """The models of a service."""

    def __init__(self, engine: Engine) -> None:
        """Find out which ops are models: those that can be one without any config."""
        self._engine, self._kept = engine, dict[tuple[str, bytes], Model]()
        self.names = [op.name for op in engine.registry.ops.values() if _is_model(op)]

    def op(self, name: object) -> Op:
        """Return the op of a model; raises ``NotFound``."""
        if not isinstance(name, str):
            raise wrong(("name",), "expected a string", expected="a string", got=describe(name))
        op = self._engine.op(name)
        if name not in self.names:
            message = f"op {name} cannot be represented as vectors of numbers of known lengths"
            raise NotFound(f"{message}; expected {near(name, self.names)}")
        return op

    def model(self, op: Op, config: object) -> Model:
        """Return the model as config settles it; raises ``Unprocessable``."""
        if not isinstance(config, dict):
            raise wrong(("config",), "expected an object", expected="an object", got=describe(config))
        try:
            key = op.name, orjson.dumps(config)
        except TypeError:  # nested too deeply for the writer, and so nothing that an op takes
            return _settled(op, cast("dict[str, Any]", config))
        model = self._kept.get(key)
        if model is None:
            model = _settled(op, cast("dict[str, Any]", config))
            if len(key[1]) <= SHORT_CONFIG:
                if len(self._kept) >= KEPT:
                    self._kept.clear()
                self._kept[key] = model
        return model


def _is_model(op: Op) -> bool:
    try:
        model = _settled(op, {})
    except PullbackError:
        return False
    return all(vector.dtype != "bool" for vector in (*model.inputs, *model.outputs))


def _settled(op: Op, config: Mapping[str, Any]) -> Model:
    for name in config:
        if name not in CONFIG:
            raise wrong(("config", name), "unknown field", expected=near(name, CONFIG), got=name)
    attrs: Any = config.get("attrs", {})
    dtype = config.get("dtype")
    if dtype is None:
        dtype = "float64" if "float64" in op.dtypes else op.dtypes[0]
    if not isinstance(dtype, str):
        raise wrong(("config", "dtype"), "expected a string", expected="a string", got=describe(dtype))
    if not isinstance(attrs, dict) or len(attrs := cast("dict[str, Any]", attrs)) > MAX_NAMES:
        expected, got = f"an object of at most {MAX_NAMES} attributes", describe(attrs)
        raise wrong(("config", "attrs"), "expected an object", expected=expected, got=got)
    with placed(_in_config):
        dtype = bind_dtype(op, dtype)
        spec = bind_spec(op, attrs, dtype, mode=op.modes[0], device="", max_elements=0)
        shapes = _shapes(op, config.get("shape", {}), spec.inputs)
        found = bind_shapes(spec, shapes)
    return Model(
        op,
        attrs,
        dtype,
        _vectors(op.inputs, spec.inputs, shapes),
        _vectors(op.outputs, spec.outputs, found),
    )


def _vectors(
    slots: tuple[Input, ...] | tuple[Output, ...], side: Side, shapes: Mapping[str, Shape]
) -> tuple[Vector, ...]:
    return tuple(Vector(slot.name, side.dtypes[slot.name], shapes[slot.name], slot.name in side.live) for slot in slots)


def _shapes(op: Op, given: Any, side: Side) -> dict[str, Shape]:
    """Return the shape of each input: as it is given, else that of the first example that has no empty tensor."""
    examples = [{name: np.shape(value) for name, value in example.inputs.items()} for example in op.examples]
    shapes = next((shapes for shapes in examples if all(map(math.prod, shapes.values()))), examples[0])
    named = cast("dict[str, Any]", given) if isinstance(given, dict) else dict.fromkeys(shapes, given)
    for name, shape in named.items():
        if name not in shapes:
            raise wrong(("shape", name), "unknown input", expected=near(name, shapes), got=name)
        loc = ("shape", name) if isinstance(given, dict) else ("shape",)
        shapes[name] = read_shape(shape, DTYPES[side.dtypes[name]], loc)
    return shapes


def _in_config(loc: Loc) -> Loc:
    """Return where in config something stands; of inputs there is only a shape."""
    return ("config", *("shape" if part == "inputs" else part for part in loc))


@contextmanager
def placed(place: Callable[[Loc], Loc]) -> Generator[None]:
    """Say of what is wrong in this block that it stands at another ``place``."""
    try:
        yield
    except Unprocessable as error:
        raise unprocessable([replace(entry, loc=place(entry.loc)) for entry in error.entries]) from None
