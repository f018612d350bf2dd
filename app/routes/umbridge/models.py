"""UM-Bridge's models: each is an op as a function of flat vectors, configured by the request's ``config``.

``config`` has ``shape`` (a list for the shape of every input, or an object with the shapes of some), ``dtype``,
``attrs`` and ``nonfinite`` (``app.routes.umbridge.nonfinite``). Default shapes are those of the op's first example
without an empty tensor; the default dtype is float64 if the op supports it. An empty list stands for an empty object,
because R cannot tell them apart, and so does null, which is C++'s ``json()``.
"""

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import orjson

from app.autodiff.binding import bind_dtype, bind_shapes, bind_spec
from app.autodiff.derived import derivations, derive
from app.autodiff.kept import Kept
from app.autodiff.point import Side
from app.errors import Loc, NotFound, PullbackError, Unprocessable, near, unprocessable, wrong
from app.execution.engine import Engine
from app.requests.models import MAX_NAMES
from app.routes.umbridge.nonfinite import FORMS, Form
from app.tensors.casting import describe
from app.tensors.dtypes import DTYPES
from app.tensors.json import read_shape
from ops import Input, Op, Output

Shape = tuple[int, ...]

CONFIG = ("shape", "dtype", "attrs", "nonfinite")
# The longest config in bytes whose model is cached.
MAX_CACHED_CONFIG = 1 << 12
# How many models of an op are kept.
MODELS = 16


class Vector(NamedTuple):
    """One vector of a model: a flattened tensor."""

    name: str
    dtype: str
    shape: Shape
    is_differentiable: bool

    @property
    def size(self) -> int:
        """The length of the vector."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Model:
    """An op with attributes, dtype and shapes fixed by a config.

    ``nonfinite`` is the form of NaN and the infinities that the config asks for, if any.
    """

    op: Op
    attrs: Mapping[str, Any]
    dtype: str
    inputs: tuple[Vector, ...]
    outputs: tuple[Vector, ...]
    nonfinite: Form | None


class Models:
    """The models of a service."""

    def __init__(self, engine: Engine) -> None:
        """Take the ops of an engine."""
        self._engine = engine

    @cached_property
    def names(self) -> list[str]:
        """The registered ops and their first derivations that are models: Python's client accepts no others.

        Those without default sizes are left out: a client may ask each for the sizes of an empty config.
        """
        registered = self._engine.registry.ops.values()
        ops = [each for op in registered for each in (op, *(derive(op, derivation) for derivation in derivations(op)))]
        return [op.name for op in ops if op.examples and is_model(op)]

    def op_at_hand(self, name: object) -> Op:
        """Return the op of a model; raises ``Unprocessable``, ``NotFound`` or ``NotAtHand``."""
        if not isinstance(name, str):
            raise wrong(("name",), "expected a string", expected="a string", got=describe(name))
        return self._engine.op_at_hand(name)

    def check(self, op: Op) -> None:
        """Raise ``NotFound`` for an op that is no model."""
        if not is_model(op):
            message = f"op {op.name} cannot be represented as vectors of numbers of known lengths"
            if op.is_complex:
                message = f"op {op.name} has complex numbers, which UM-Bridge lacks: use /v1 or /tesseract"
            raise NotFound(f"{message}; expected {near(op.name, self.names)}")

    def model(self, op: Op, config: object) -> Model:
        """Return the model for a config; raises ``Unprocessable``."""
        if _is_empty(config):
            config = {}
        if not isinstance(config, dict):
            raise wrong(("config",), "expected an object", expected="an object", got=describe(config))
        try:
            text = orjson.dumps(config)
        except TypeError:  # too deeply nested for orjson, so no op accepts it
            text = b""
        is_known = 0 < len(text) <= MAX_CACHED_CONFIG
        return _known_models(op)(text) if is_known else _make_model(op, cast("dict[str, Any]", config))


@Kept
def is_model(op: Op) -> bool:
    """Return whether an op has real numbers only, and shapes for an empty config; without an example it gives them."""
    dtype = _default_dtype(op)
    if op.is_complex or "bool" in [op.dtype_of(slot, dtype) for slot in (*op.inputs, *op.outputs)]:
        return False
    if not op.examples:
        return True
    try:
        _make_model(op, {})
    except PullbackError:
        return False
    return True


def _default_dtype(op: Op) -> str:
    return "float64" if "float64" in op.dtypes else op.dtypes[0]


@Kept
def _known_models(op: Op) -> Callable[[bytes], Model]:
    """Return the function that returns the model of an op for a config, and keeps some of them."""

    def model(config: bytes) -> Model:
        return _make_model(op, orjson.loads(config))

    return lru_cache(maxsize=MODELS)(model)


def _make_model(op: Op, config: Mapping[str, Any]) -> Model:
    for name in config:
        if name not in CONFIG:
            raise wrong(("config", name), "unknown field", expected=near(name, CONFIG), got=name)
    attrs: Any = config.get("attrs", {})
    if _is_empty(attrs):
        attrs = {}
    nonfinite = config.get("nonfinite")
    if nonfinite is not None and nonfinite not in FORMS:
        expected, got = f"one of {', '.join(FORMS)}", describe(nonfinite)
        raise wrong(("config", "nonfinite"), "unknown form of NaN and the infinities", expected=expected, got=got)
    dtype = config.get("dtype")
    if dtype is None:
        dtype = _default_dtype(op)
    if not isinstance(dtype, str):
        raise wrong(("config", "dtype"), "expected a string", expected="a string", got=describe(dtype))
    if not isinstance(attrs, dict) or len(attrs := cast("dict[str, Any]", attrs)) > MAX_NAMES:
        expected, got = f"an object of at most {MAX_NAMES} attributes", describe(attrs)
        raise wrong(("config", "attrs"), "expected an object", expected=expected, got=got)
    with relocate_errors(_config_loc):
        dtype = bind_dtype(op, dtype)
        spec = bind_spec(op, attrs, dtype, mode=op.modes[0], device="", max_elements=0)
        shapes = _shapes(op, config.get("shape", {}), spec.inputs)
        output_shapes = bind_shapes(spec, shapes)
    return Model(
        op,
        attrs,
        dtype,
        _vectors(op.inputs, spec.inputs, shapes),
        _vectors(op.outputs, spec.outputs, output_shapes),
        nonfinite,
    )


def _is_empty(value: object) -> bool:
    """Return whether a client that cannot write an empty object, R or C++, may have written this in its place."""
    return value is None or value == []


def _vectors(
    slots: tuple[Input, ...] | tuple[Output, ...], side: Side, shapes: Mapping[str, Shape]
) -> tuple[Vector, ...]:
    return tuple(
        Vector(slot.name, side.dtypes[slot.name], shapes[slot.name], slot.name in side.differentiable) for slot in slots
    )


def _shapes(op: Op, config: Any, side: Side) -> dict[str, Shape]:
    """Return the shape of each input: from ``config``, else from the first example without an empty tensor.

    A graph that does not accept small tensors of equal sizes has no example unless its document does.
    """
    # A model has a fixed number of inputs: all of them.
    whole = [example for example in op.examples if len(example.inputs) == len(op.inputs)]
    examples = [{name: np.shape(value) for name, value in example.inputs.items()} for example in whole]
    found = next((shapes for shapes in examples if all(map(math.prod, shapes.values()))), (*examples, {})[0])
    names = [slot.name for slot in op.inputs]
    named = cast("dict[str, Any]", config) if isinstance(config, dict) else dict.fromkeys(names, config)
    for name, shape in named.items():
        if name not in names:
            raise wrong(("shape", name), "unknown input", expected=near(name, names), got=name)
        loc = ("shape", name) if isinstance(config, dict) else ("shape",)
        found[name] = read_shape(shape, DTYPES[side.dtypes[name]], loc)
    if missing := [name for name in names if name not in found]:
        message = f"op {op.name} has no example, and so no default shapes"
        expected, got = f"a shape for each of {', '.join(names)}", f"none for {', '.join(missing)}"
        raise wrong(("shape",), message, expected=expected, got=got)
    return found


def _config_loc(loc: Loc) -> Loc:
    """Return a location of the native request as one in ``config``, which has only the shapes of inputs."""
    return ("config", *("shape" if part == "inputs" else part for part in loc))


@contextmanager
def relocate_errors(translate: Callable[[Loc], Loc]) -> Generator[None]:
    """Translate the locations of the ``Unprocessable`` errors that this block raises."""
    try:
        yield
    except Unprocessable as error:
        raise unprocessable([replace(entry, loc=translate(entry.loc)) for entry in error.entries]) from None
