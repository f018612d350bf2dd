"""The parts of an op: its functions, its signature, its attributes and what its gradient claims to be.

Notation, here and on every op's page:

=========  =====================================================================================
``x, y``   primals: the inputs and outputs of the op
``dy``     cotangent of an output: the argument of the gradient function
``dx``     cotangent of an input: the result of the gradient (the *pullback*), same shape as ``x``
``ddx``    cotangent of ``dx``: the argument of the gradient of the gradient
``tx, ty`` tangents of an input and of an output
``T``      the op's type variable: the dtype of every input and output that lists several dtypes; if none does, the
           dtype of the first that is a float
=========  =====================================================================================

A page's functions take tensors by position and the op's attributes by keyword:

=======================================  =======================================================
``forward(*x, **attrs)``                 y
``vjp(*x, *dy, **attrs)``                dx, one for each x
``vjp_vjp(*x, *dy, *ddx, **attrs)``      cotangents: one for each x, then one for each dy
``reference(*x, **attrs)``               y, in NumPy
=======================================  =======================================================

A single value is returned bare, several in a tuple; ``None`` means "no gradient, on purpose".
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeAlias, get_args, get_origin

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

Tensor: TypeAlias = tf.Tensor
Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = Sequence[Array]
Function: TypeAlias = Callable[..., Any]
Shape: TypeAlias = tuple[str | int, ...]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
BOOL = "bool"

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
ANY_SHAPE: Shape = ("...",)
UNDECLARED = (-3.0, 3.0)
"""The domain of an input that declares none: checks sample there, and expect finite derivatives everywhere."""

Mode = Literal["graph", "eager", "xla", "v1"]
MODES: tuple[Mode, ...] = get_args(Mode)
UNCOMPILED: tuple[Mode, ...] = ("graph", "eager", "v1")
"""The modes of an op without an XLA kernel, such as a C++ op."""

Batching = Literal["elementwise", "leading_axis", "none"]
Mechanism = Literal[
    "custom_gradient",
    "gradient_override_map",
    "stop_gradient",
    "register_gradient",
    "symbolic_gradient",
    "by_attribute",
]


class Attrs(BaseModel):
    """The attributes of an op; subclass it, with a typed and bounded field and a default for each.

    A ``float`` field is a *number*: it reaches the op as a scalar tensor of the op's type variable, so that a new
    value never makes a new trace. Every other field (``Literal``, ``int``, ``bool``) is *static*: it reaches the op
    unchanged, and each value has its own trace.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    @cache
    def number_names(cls) -> tuple[str, ...]:
        """Return the names of the number attributes, in order of declaration."""
        return tuple(name for name, info in cls.model_fields.items() if info.annotation is float)

    @classmethod
    @cache
    def static_names(cls) -> tuple[str, ...]:
        """Return the names of the static attributes, in order of declaration."""
        return tuple(name for name, info in cls.model_fields.items() if info.annotation is not float)

    def numbers(self) -> dict[str, float]:
        """Return the number attributes, in order of declaration."""
        return {name: getattr(self, name) for name in self.number_names()}

    def static(self) -> dict[str, Any]:
        """Return the static attributes, in order of declaration."""
        return {name: getattr(self, name) for name in self.static_names()}


@dataclass(frozen=True)
class Derivative:
    """The claim of being the true derivative: first, of forward; second, of the op's own ``vjp(x, dy)``."""


@dataclass(frozen=True)
class Surrogate:
    """The claim of being the derivative of another function, in NumPy.

    As a first claim ``of(primals, at) -> outputs``; as a second ``of(primals, cotangents, at) -> dx``. ``at`` are the
    same primals frozen at the point: constants, as under ``tf.stop_gradient``.
    """

    of: Callable[..., Arrays]


@dataclass(frozen=True)
class Formula:
    """The claim of being a formula that is not the derivative of any function, in NumPy.

    As a first claim ``vjp(primals, cotangents) -> dx``; as a second ``vjp(primals, cotangents, ddx) -> x slots``.
    """

    vjp: Callable[..., Arrays]


@dataclass(frozen=True)
class Claim:
    """What a gradient claims to be, so that it can be checked even when it is deliberately not the derivative.

    ``first`` is about dx, ``second`` about the x slots of ``vjp_vjp`` (its dy slots are always those of the op's own
    vjp). ``linear`` says whether vjp is linear in dy: if not, there is no jvp.
    """

    first: Derivative | Surrogate | Formula = Derivative()
    second: Derivative | Surrogate | Formula = Derivative()
    linear: bool = True


def honest(attrs: Attrs) -> Claim:
    """Claim the true derivative at both orders, whatever the attributes: the default claim."""
    del attrs
    return Claim()


@dataclass(frozen=True)
class Input:
    """An input: its name, its dtypes (several: the type variable's), its symbolic shape.

    A symbol in ``shape`` stands for one dimension, the same wherever it appears in the op; ``"..."`` for any number of
    them; an int for itself. ``domain`` is where checks sample; at ``kinks`` and ``poles`` derivatives are one-sided
    or infinite, and checks keep away. An input of ``("bool",)``, such as a mask, has none of these and no derivative.
    """

    name: str
    dtypes: tuple[str, ...] = FLOATS
    shape: Shape = ANY_SHAPE
    differentiable: bool = True
    doc: str = ""
    domain: tuple[float, float] = UNDECLARED
    kinks: tuple[float, ...] = ()
    poles: tuple[float, ...] = ()

    @property
    def has_domain(self) -> bool:
        """Whether a domain is declared."""
        return self.domain is not UNDECLARED


@dataclass(frozen=True)
class Output:
    """An output: like an input, without a domain."""

    name: str
    dtypes: tuple[str, ...] = FLOATS
    shape: Shape = ANY_SHAPE
    differentiable: bool = True
    doc: str = ""


@dataclass(frozen=True)
class Example:
    """An example input of an op, as nested lists, for the tests, the OpenAPI document, the docs and the checks."""

    name: str
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, eq=False)
class Op:
    """A registered op.

    ``function(*inputs, **attrs)`` is any TensorFlow function, however it gets its gradient; ``reference`` is the same
    forward, independently in NumPy, with float64 inside: check ``value`` compares the two, and needs it.
    ``validate(inputs, attrs)`` refuses bad values with ``InvalidInput`` before any mode runs, because XLA drops
    assertions. ``sample(rng, dtype, attrs)`` draws a valid joint point. ``singular(inputs, attrs)`` reports a
    derivative that is infinite where the value is finite and no input's own poles say so, such as where eigenvalues
    meet. ``modes`` are those that the op can run in. ``batching`` says when requests may share a call. ``cost(dims)``,
    by the shapes' symbols, is the number of multiply-adds of forward, if it grows faster than the tensors; the
    admission of requests uses it. ``null_gradients`` names the inputs whose first-order gradient is missing on purpose.

    Raises ``ValueError`` at construction when the declaration contradicts itself.
    """

    name: str
    summary: str
    doc: str | None
    function: Function
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    mechanism: Mechanism
    source: str
    examples: tuple[Example, ...]
    reference: Function | None = None
    attrs: type[Attrs] = Attrs
    claim: Callable[[Any], Claim] = honest
    modes: tuple[Mode, ...] = MODES
    batching: Batching = "none"
    cost: Callable[[Mapping[str, Any]], int] | None = None
    validate: Callable[[Mapping[str, Array], Any], None] | None = None
    sample: Callable[[np.random.Generator, str, Any], dict[str, Array]] | None = None
    singular: Callable[[Mapping[str, Array], Any], bool] | None = None
    null_gradients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a declaration that contradicts itself."""
        self._check_names()
        self._check_slots()
        self._check_attributes()

    def _check_names(self) -> None:
        names = [self.name, *self.attrs.model_fields, *(slot.name for slot in (*self.inputs, *self.outputs))]
        for name in names:
            if not NAME.fullmatch(name):
                raise ValueError(f"op {self.name!r}: expected names like [a-z][a-z0-9_]{{0,63}}, got {name!r}")
        for kind, slots in (("input", self.inputs), ("output", self.outputs)):
            if len({slot.name for slot in slots}) < len(slots):
                raise ValueError(f"op {self.name!r}: two {kind}s have the same name")
        # Other protocols send attributes among the inputs.
        if both := [slot.name for slot in self.inputs if slot.name in self.attrs.model_fields]:
            raise ValueError(f"op {self.name!r}: expected an input and an attribute to differ in name, got {both[0]!r}")

    def _check_slots(self) -> None:
        if not self.inputs or not self.outputs or not self.examples:
            raise ValueError(f"op {self.name!r}: expected at least one input, one output and one example")
        for slot in self.inputs:
            if not all(map(math.isfinite, (*slot.domain, *slot.kinks, *slot.poles))):
                raise ValueError(f"op {self.name!r}, input {slot.name!r}: expected a finite domain, kinks and poles")
        for slot in (*self.inputs, *self.outputs):
            if BOOL in slot.dtypes and (len(slot.dtypes) > 1 or slot.differentiable):
                expected = "bool alone, and differentiable=False beside it"
                raise ValueError(f"op {self.name!r}, {slot.name!r}: expected {expected}, got {slot.dtypes}")
        if len({slot.dtypes for slot in (*self.inputs, *self.outputs) if len(slot.dtypes) > 1}) > 1:
            raise ValueError(f"op {self.name!r}: inputs and outputs with several dtypes must all list the same ones")
        if self.batching == "elementwise" and any(s.shape != ANY_SHAPE for s in (*self.inputs, *self.outputs)):
            raise ValueError(f"op {self.name!r}: an elementwise op has inputs and outputs of one shape, {ANY_SHAPE}")

    def _check_attributes(self) -> None:
        for name, info in self.attrs.model_fields.items():
            if not _is_attribute(info):
                expected = "float, bool, a Literal, or an int with bounds on both sides (each value has its own trace)"
                raise ValueError(f"op {self.name!r}, attribute {name!r}: expected {expected}, got {info.annotation}")
        if self.attrs.number_names() and not set(self.dtypes) <= set(FLOATS):
            raise ValueError(f"op {self.name!r}: number attributes need a type variable of float dtypes only")
        self.claim(self._attrs({}))
        for example in self.examples:
            self._attrs(example.attrs)
            if set(example.inputs) != {slot.name for slot in self.inputs}:
                expected = ", ".join(slot.name for slot in self.inputs)
                raise ValueError(f"op {self.name!r}, example {example.name!r}: expected exactly the inputs {expected}")

    def _attrs(self, values: Mapping[str, Any]) -> Attrs:
        try:
            return self.attrs.model_validate(values)
        except ValueError as error:
            what = f"attributes {dict(values)}" if values else "a default for every attribute"
            raise ValueError(f"op {self.name!r}: expected {what} to be valid, got {error}") from error

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of the type variable T, the default first."""
        declared: list[tuple[str, ...]] = [slot.dtypes for slot in (*self.inputs, *self.outputs)]
        return max(declared, key=lambda dtypes: (len(dtypes) > 1, dtypes[0] in FLOATS))

    @property
    def owner(self) -> str:
        """The name of the registered op whose share of the service its work counts against."""
        return self.name

    @property
    def needs_linear(self) -> bool:
        """Whether it exists only for attributes with which its gradient is linear in the cotangent."""
        return False

    def dtype_of(self, slot: Input | Output, dtype: str) -> str:
        """Return the dtype of an input or output when the type variable is ``dtype``."""
        return slot.dtypes[0] if len(slot.dtypes) == 1 else dtype

    def is_differentiable(self, slot: Input | Output, dtype: str) -> bool:
        """Report whether derivatives reach ``slot`` when the type variable is ``dtype``: declared so, and a float."""
        return slot.differentiable and self.dtype_of(slot, dtype) in FLOATS


def _is_attribute(info: FieldInfo) -> bool:
    """Report whether a field is an attribute that can be sent as JSON and has a bounded number of traces."""
    bounds = {bound for m in info.metadata for bound in ("ge", "gt", "le", "lt") if hasattr(m, bound)}
    bounded = bool(bounds & {"ge", "gt"}) and bool(bounds & {"le", "lt"})
    kind: object = info.annotation
    return kind is float or kind is bool or get_origin(kind) is Literal or (kind is int and bounded)
