"""The parts of an op: its functions, its signature, its attributes and what its gradient claims to be.

Notation, here and on every op's page:

=========  =====================================================================================
``x, y``   primals: the inputs and outputs of the op
``dy``     cotangent of an output: the argument of the gradient function
``dx``     cotangent of an input: the result of the gradient (the *pullback*), same shape as ``x``
``ddx``    cotangent of ``dx``: the argument of the gradient of the gradient
``tx, ty`` tangents of an input and of an output
``T``      the op's type variable: the dtype of every input and output that lists several dtypes; if none does, the
           dtype of the first that is a float. Inputs with another list have a second type variable: the dtype of the
           tensor that is sent. Of both, T is the first whose default is a float
=========  =====================================================================================

A page's functions take tensors by position and the op's attributes by keyword:

=======================================  =======================================================
``forward(*x, **attrs)``                 y
``vjp(*x, *dy, **attrs)``                dx, one for each x
``vjp_vjp(*x, *dy, *ddx, **attrs)``      cotangents: one for each x, then one for each dy
``reference(*x, **attrs)``               y, in NumPy
=======================================  =======================================================

A single value is returned bare, several in a tuple; ``None`` means "no gradient, on purpose". In place of an optional
input that is not sent, a function gets ``None``, and its gradient is ``None``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import tensorflow as tf

from pullback.ops._attrs import Attrs, check_attributes, valid_attributes
from pullback.ops._claims import Array, Claim, true_derivative
from pullback.ops._fields import check_arguments, check_fields, check_text, shown
from pullback.ops._inferred_mechanism import BOTH_TRUE, INFERRED, Mechanism, inferred, made_by
from pullback.ops._models import fields_of_keras, fields_of_module
from pullback.ops._pairs import as_pairs, to_complex, to_pairs
from pullback.ops._parameters import Parameter, ParameterSet, own_values
from pullback.ops._rules import Function, Tensor, many
from pullback.ops._saved_models import SIGNATURE, fields_of_saved_model
from pullback.ops._shown import html_of, text_of
from pullback.ops._slots import (
    COMPLEX,
    COMPLEX_OF,
    FLOATS,
    Batching,
    BatchingOf,
    Example,
    Input,
    Output,
    check_batching,
    check_variables,
    duplicate_names,
    unbound_symbols,
)

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

Mode = Literal["graph", "eager", "xla", "v1"]
MODES: tuple[Mode, ...] = get_args(Mode)
UNCOMPILED: tuple[Mode, ...] = ("graph", "eager", "v1")
"""The modes of an op without an XLA kernel, such as a C++ op."""


@dataclass(frozen=True, eq=False, repr=False)
class Op:
    """A registered op.

    ``function(*inputs, **attrs)`` is any TensorFlow function, however it gets its gradient; ``mechanism`` says how, and
    is inferred if it is left out (``_inferred_mechanism.py`` has what each means). ``reference`` is the same forward,
    independently in NumPy, with float64 inside: check ``value`` compares the two, and needs it. ``validate(inputs,
    attrs)`` refuses bad values with ``InvalidInput`` before any mode runs, because XLA drops assertions. ``sample(rng,
    dtype, attrs)`` draws a valid joint point. ``singular(inputs, attrs)`` reports a derivative that is infinite where
    the value is finite and no input's own poles say so, such as where eigenvalues meet. ``modes`` are those that the op
    can run in. ``batching`` says which rows are independent, so that requests may share a call; if that depends on
    static attributes, it is a function of the attributes. ``shared`` names the inputs without rows, which all rows use.
    ``cost(dims)``, by the shapes' symbols, is the number of multiply-adds of forward, if it grows faster than the
    tensors; the admission of requests uses it. ``sizes(dims)`` returns the symbols of the outputs that follow from
    those of the inputs and the integer attributes by a formula; it raises ``InvalidInput`` for shapes that the op does
    not accept. ``sparsity(dims)`` returns where the Jacobian may have nonzeros, ``{"y": {"x": (rows, columns)}}``, with
    the numbers of y and of x in row-major order; a block that it leaves out has none. ``null_gradients`` names the
    inputs whose first-order gradient is missing on purpose. ``holomorphic`` claims that each complex output is a
    holomorphic function of each complex input: then its Jacobian is complex. ``parameters`` are further inputs, behind
    the others in every function of the page but ``validate`` and ``sample``; requests leave them out, and the page's
    own values, or others that the server has, take their place.

    Raises ``ValueError`` at construction if the declaration contradicts itself.
    """

    name: str
    summary: str
    doc: str | None
    function: Function
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    source: str
    examples: tuple[Example, ...]
    mechanism: Mechanism = INFERRED
    reference: Function | None = None
    attrs: type[Attrs] = Attrs
    claim: Callable[[Any], Claim] = true_derivative
    modes: tuple[Mode, ...] = MODES
    batching: Batching | BatchingOf = "none"
    shared: tuple[str, ...] = ()
    cost: Callable[[Mapping[str, Any]], int] | None = None
    sizes: Callable[[Mapping[str, Any]], Mapping[str, int]] | None = None
    sparsity: Callable[[Mapping[str, Any]], Mapping[str, Mapping[str, Any]]] | None = None
    validate: Callable[[Mapping[str, Array], Any], None] | None = None
    sample: Callable[[np.random.Generator, str, Any], dict[str, Array]] | None = None
    singular: Callable[[Mapping[str, Array], Any], bool] | None = None
    null_gradients: tuple[str, ...] = ()
    holomorphic: bool = False
    parameters: tuple[Parameter, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``TypeError`` for a wrong field, ``ValueError`` for a declaration that contradicts itself."""
        what = f"op {shown(self.name)}"
        if self.mechanism is INFERRED:
            object.__setattr__(self, "mechanism", inferred(self.function))
        check_fields(Op, self, what)
        if any(COMPLEX.keys() & slot.dtypes for slot in (*self.inputs, *self.outputs)):
            for name, value in as_pairs(self).items():
                object.__setattr__(self, name, value)
        try:
            self._check_names()
            self._check_slots()
            if not callable(self.batching):
                self._check_batching(self.batching, varies=False)
            self._check_attributes()
            self._check_functions()
            for values in (dict[str, Any](), *(example.attrs for example in self.examples)):
                self.batching_for(valid_attributes(self.attrs, values))
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from error

    @classmethod
    def from_keras(cls, model: Any, *, name: str, summary: str, examples: tuple[Example, ...], **fields: Any) -> "Op":
        """Return the op of a Keras model at inference, whose weights are the parameters.

        Inputs and outputs are those of the model. ``fields`` are others of the op, or take their place. A parameter has
        the path of its variable as name, in lower case: ``dense/kernel`` is ``dense_kernel``. Raises ``ValueError`` for
        a model that is not built, and as the constructor.
        """
        every: dict[str, Any] = {"doc": None, **fields_of_keras(model), **fields}
        return cls(**every, name=name, summary=summary, examples=examples)

    @classmethod
    def from_module(
        cls, module: tf.Module, *, name: str, summary: str, examples: tuple[Example, ...], **fields: Any
    ) -> "Op":
        """Return the op of the ``__call__`` of a module, whose variables are the parameters.

        ``fields`` are others of the op, with ``inputs`` and ``outputs``. Parameters are named as in ``from_keras``.
        Raises ``ValueError`` for a module whose variables cannot become parameters, and as the constructor.
        """
        if not {"inputs", "outputs"} <= fields.keys():
            raise ValueError("Op.from_module: expected inputs and outputs, because a module does not say what it takes")
        every: dict[str, Any] = {"doc": None, **fields_of_module(module, fields["inputs"]), **fields}
        return cls(**every, name=name, summary=summary, examples=examples)

    @classmethod
    def from_saved_model(
        cls,
        folder: str | Path,
        *,
        name: str,
        summary: str,
        examples: tuple[Example, ...],
        signature: str = SIGNATURE,
        **fields: Any,
    ) -> "Op":
        """Return the op of a signature of a SavedModel, whose variables are the parameters.

        ``fields`` are others of the op, or take the place of those of the signature. Parameters are named as in
        ``from_keras``. Raises ``ValueError`` for a folder that has no such SavedModel, for a signature with ops that
        have state, run Python or read files, and as the constructor.
        """
        every: dict[str, Any] = {"doc": None, **fields_of_saved_model(Path(folder), signature), **fields}
        return cls(**every, name=name, summary=summary, examples=examples)

    def __call__(self, *inputs: Any, dtype: str | None = None, **attrs: Any) -> Any:
        """Return ``function(*inputs, **attrs)``, a TensorFlow function with the gradients of the page.

        Arrays, lists and numbers become tensors, where several dtypes are declared of ``dtype``, by default the first;
        tensors stay as they are. ``None`` stands for an optional input, and those at the end may be left out.
        Attributes have their defaults. Raises ``TypeError`` for a wrong number of inputs, ``ValueError`` for wrong
        attributes, and ``InvalidInput`` for what ``validate`` refuses.
        """
        absent = [slot.optional for slot in self.inputs[len(inputs) :]]
        if len(inputs) > len(self.inputs) or not all(absent):
            expected = ", ".join(slot.name for slot in self.inputs)
            raise TypeError(f"op {self.name}: expected one value for each of {expected}, got {len(inputs)}")
        kind, valid = self.dtype_named(dtype) or self.dtypes[0], valid_attributes(self.attrs, attrs)
        xs = dict[str, Tensor | None]()
        for slot, given in zip(self.inputs, (*inputs, *(None for _ in absent)), strict=True):
            kind_of = None if isinstance(given, tf.Tensor | tf.Variable) else self.shown_dtype_of(slot, kind)
            is_sent = given is not None or not slot.optional
            x = tf.convert_to_tensor(cast(Any, given), kind_of) if is_sent else None
            xs[slot.name] = to_pairs(x) if x is not None and slot.is_complex else x
        if self.validate and tf.executing_eagerly():
            self.validate({name: x.numpy() for name, x in xs.items() if x is not None}, valid)
        numbers = {name: tf.convert_to_tensor(value, kind) for name, value in valid.numbers().items()}
        held = [tf.convert_to_tensor(each.value) for each in self.parameters]
        result = self.function(*xs.values(), *held, **valid.static(), **numbers)
        if not any(slot.is_complex for slot in self.outputs):
            return result
        ys = zip(many(result), self.outputs, strict=True)
        found = [to_complex(y) if slot.is_complex else y for y, slot in ys]
        return tuple(found) if len(found) > 1 else found[0]

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self, list(self.attrs.model_fields))

    def _check_batching(self, batching: object, *, varies: bool) -> None:
        """Raise ``ValueError`` for rows that the slots do not have, with all inputs or without the optional ones."""
        always = [slot for slot in self.inputs if not slot.optional]
        for inputs in (self.inputs, always) if self.optional_names else (self.inputs,):
            names = [slot.name for slot in inputs]
            shared = tuple([name for name in self.shared if name in names or name not in self.optional_names])
            check_batching(batching, shared, inputs, self.outputs, varies=varies)
        if self.parameters and batching == "elementwise":
            cure = 'declare batching="leading_axes" and shapes that begin with "..."'
            raise ValueError(f"batching: expected no parameters of an elementwise op, got some; {cure}")

    def _check_names(self) -> None:
        slots = (*self.inputs, *self.outputs, *self.parameters)
        for name in (self.name, *self.attrs.model_fields, *(slot.name for slot in slots)):
            if not NAME.fullmatch(name):
                cure = "; for any number of inputs, stack them on an axis of one" if name.startswith("*") else ""
                raise ValueError(f"expected names like [a-z][a-z0-9_]{{0,63}}, got {shown(name)}{cure}")
        sent = {"inputs": self.inputs, "inputs and parameters": self.every_input}
        for kind, named in (sent | {"outputs": self.outputs, "examples": self.examples}).items():
            if duplicates := duplicate_names(named):
                raise ValueError(f"expected {kind} to differ in name, got {shown(duplicates[0])} twice")
        # Other protocols send attributes among the inputs.
        if both := [slot.name for slot in self.every_input if slot.name in self.attrs.model_fields]:
            raise ValueError(f"expected an input and an attribute to differ in name, got {both[0]!r}")
        if unknown := set(self.null_gradients) - {slot.name for slot in self.every_input}:
            expected = f"null_gradients to name inputs ({', '.join(slot.name for slot in self.inputs)})"
            raise ValueError(f"expected {expected}, got {shown(min(unknown))}")
        for text in (self.summary, self.doc or "", self.source):
            check_text(text, "summary, doc and source")

    def _check_slots(self) -> None:
        if not self.inputs or not self.outputs or not self.examples:
            raise ValueError("expected at least one input, one output and one example")
        check_variables(self.dtypes, self.second_dtypes, self.inputs, self.outputs)
        sizes = {size.lower(): size for slot in self.inputs for size in slot.shape if isinstance(size, str)}
        for size, name in unbound_symbols(self.inputs, self.outputs, self.attrs.static_names()).items():
            if similar := sizes.get(size.lower()):
                expected = f"output {name!r}: expected symbols of the inputs"
                raise ValueError(f"{expected}, got {size!r}; write {similar!r}, or another name for a different size")
        if self.holomorphic and not all(any(s.is_complex for s in slots) for slots in (self.inputs, self.outputs)):
            raise ValueError("holomorphic: expected a complex input and a complex output, got none; leave it out")
        if "graph" not in self.modes or len(set(self.modes)) < len(self.modes):
            raise ValueError(f"expected modes with graph, which is the default, each once, got {self.modes}")

    def _check_attributes(self) -> None:
        check_attributes(self.attrs)
        if self.attrs.number_names() and not set(self.dtypes) <= set(FLOATS):
            raise ValueError("number attributes need a type variable of float dtypes only")
        for example in self.examples:
            if ({slot.name for slot in self.inputs} ^ set(example.inputs)) - set(self.optional_names):
                expected = ", ".join(slot.name for slot in self.inputs)
                cure = "declare Input(optional=True) for one that may be absent"
                raise ValueError(f"example {example.name!r}: expected exactly the inputs {expected}; {cure}")
        if not any(len(example.inputs) == len(self.inputs) for example in self.examples):
            raise ValueError(f"expected an example with the optional inputs {', '.join(self.optional_names)}, got none")
        for values in (dict[str, Any](), *(example.attrs for example in self.examples)):
            claim = cast(object, self.claim(valid_attributes(self.attrs, values)))
            if not isinstance(claim, Claim):
                raise ValueError(f"claim: expected it to return a Claim, got {shown(claim)}")

    def _check_functions(self) -> None:
        made = made_by(self.function)
        if made and self.mechanism != made and not {self.mechanism, made} <= BOTH_TRUE:
            expected = f"mechanism: expected {made!r}, by which the function is made"
            raise ValueError(f"{expected}, got {self.mechanism!r}; leave it out, and it is inferred")
        inputs, attrs = [slot.name for slot in self.every_input], list(self.attrs.model_fields)
        for name in ("function", "reference"):
            check_arguments(name, getattr(self, name), inputs, attrs)
        of_attrs = {"validate": ["inputs"], "sample": ["rng", "dtype"], "singular": ["inputs"]}
        for name, positional in of_attrs.items():
            check_arguments(name, getattr(self, name), [*positional, "attrs"], [])
        check_arguments("cost", self.cost, ["dims"], [])
        check_arguments("sizes", self.sizes, ["dims"], [])
        check_arguments("sparsity", self.sparsity, ["dims"], [])
        if callable(self.batching):
            check_arguments("batching", self.batching, ["attrs"], [])

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of the type variable T, the default first."""
        sent = [slot.dtypes for slot in self.inputs if not slot.optional]
        declared = [*sent, *(slot.dtypes for slot in self.outputs)]
        # Several dtypes of an integer input are those of a second type variable, if there is a float.
        named = [dtypes for dtypes in declared if dtypes[0] in FLOATS or dtypes not in sent] or declared
        return max(named, key=lambda dtypes: (len(dtypes) > 1, dtypes[0] in FLOATS))

    @property
    def second_dtypes(self) -> tuple[str, ...]:
        """The dtypes of the second type variable, the default first; none if there is no second one."""
        return self._second[0]

    @property
    def second_names(self) -> frozenset[str]:
        """The names of the inputs with the second type variable."""
        return self._second[1]

    @cached_property
    def _second(self) -> tuple[tuple[str, ...], frozenset[str]]:
        others = [slot for slot in self.inputs if len(slot.dtypes) > 1 and slot.dtypes != self.dtypes]
        dtypes = others[0].dtypes if others else ()
        return dtypes, frozenset(slot.name for slot in others if slot.dtypes == dtypes)

    @cached_property
    def optional_names(self) -> tuple[str, ...]:
        """The names of the optional inputs."""
        return tuple([slot.name for slot in self.inputs if slot.optional])

    @property
    def has_variants(self) -> bool:
        """Whether a request determines more than the values of the inputs it may send, as ``_variants.py`` says."""
        return bool(self.optional_names or self.second_dtypes or self.parameters)

    def parameter(self, name: str) -> Parameter | None:
        """Return the parameter with a name, ``None`` if there is none."""
        return next((each for each in self.parameters if each.name == name), None)

    @property
    def every_input(self) -> tuple[Input, ...]:
        """The inputs, and behind them those that get the parameters."""
        return (*self.inputs, *(each.slot for each in self.parameters))

    @property
    def held(self) -> tuple[str, ...]:
        """The names of the inputs that are parameters whose values requests leave out: the last ones of a variant."""
        return ()

    @property
    def own_parameters(self) -> ParameterSet:
        """The page's own values of the parameters."""
        return self._own_values

    @cached_property
    def _own_values(self) -> ParameterSet:
        return own_values(self.parameters)

    @property
    def taken_names(self) -> frozenset[str]:
        """The names that no input of a derived op may have, besides its own."""
        return frozenset((*self.attrs.model_fields, *(slot.name for slot in self.general.every_input)))

    @property
    def general(self) -> "Op":
        """The op of which this is a variant, with all inputs; this one, if it is none."""
        return self

    @property
    def owner(self) -> str:
        """The name of the registered op whose share of the service its work counts against."""
        return self.name

    @property
    def parts(self) -> tuple["Op", ...]:
        """The ops that it composes; none for an op with a page."""
        return ()

    @cached_property
    def with_names(self) -> "Op":
        """This op, where errors of TensorFlow name the op of ``parts`` that raises them."""
        return self

    def node_without_gradient(self, name: str, inputs: Mapping[str, Tensor], attrs: Mapping[str, Any]) -> str:
        """Return the op of ``parts`` that has no gradient on the way to an input, as text; "" if that is unknown."""
        return ""

    @property
    def needs_linear(self) -> bool:
        """Whether it exists only for attributes with which its gradient is linear in the cotangent."""
        return False

    @property
    def depth(self) -> int:
        """How many derivations lead to it from a registered op."""
        return 0

    @property
    def batching_varies(self) -> bool:
        """Whether the batching is a function of the attributes."""
        return callable(self.batching)

    def batching_for(self, attrs: Attrs) -> Batching:
        """Return the batching with these attributes; numbers do not count, because they are arguments of a trace.

        Raises ``ValueError`` if the author's function returns no batching, or one that the slots do not have.
        """
        if not callable(self.batching):
            return self.batching
        batching = self.batching(self.attrs.model_construct(**attrs.static()))
        self._check_batching(batching, varies=True)
        return batching

    def dtype_of(self, slot: Input | Output, dtype: str, second: str = "") -> str:
        """Return the dtype of an input or output with these type variables; ``second`` is by default its first."""
        default, *others = slot.dtypes
        if others and slot.dtypes == self.dtypes:
            return dtype
        return second if second and slot.dtypes == self.second_dtypes else default

    @cached_property
    def is_complex(self) -> bool:
        """Whether any input or output has complex numbers."""
        return any(slot.is_complex for slot in (*self.general.every_input, *self.outputs))

    @property
    def shown_dtypes(self) -> tuple[str, ...]:
        """The dtypes of T as requests and answers name them: as its first input or output is complex or real."""
        return tuple(dict.fromkeys(self._names_of_dtypes.values()))

    @cached_property
    def _names_of_dtypes(self) -> dict[str, str]:
        """How each dtype of T is named."""
        kinds = [slot.is_complex for slot in (*self.inputs, *self.outputs) if slot.dtypes == self.dtypes]
        return {dtype: COMPLEX_OF[dtype] if any(kinds[:1]) else dtype for dtype in self.dtypes}

    def shown_dtype(self, dtype: str) -> str:
        """Return the name of a dtype of T in requests and answers."""
        return self._names_of_dtypes.get(dtype, dtype)

    def dtype_named(self, name: str | None) -> str | None:
        """Return the dtype of T that a request names, ``None`` for any other name.

        If T has complex and real slots, both names are known.
        """
        if not self.is_complex:
            return name if name in self.dtypes else None
        kinds = {slot.is_complex for slot in (*self.inputs, *self.outputs) if slot.dtypes == self.dtypes}
        known = {COMPLEX_OF[dtype] if kind else dtype: dtype for kind in kinds or {False} for dtype in self.dtypes}
        return known.get(name or "")

    def shown_dtype_of(self, slot: Input | Output, dtype: str, second: str = "") -> str:
        """Return the dtype of the numbers of an input or output, as ``dtype_of`` does."""
        found = self.dtype_of(slot, dtype, second)
        return COMPLEX_OF[found] if slot.is_complex else found

    def is_differentiable(self, slot: Input | Output, dtype: str) -> bool:
        """Report whether derivatives reach ``slot`` when the type variable is ``dtype``: declared so, and a float."""
        return slot.differentiable and self.dtype_of(slot, dtype) in FLOATS
