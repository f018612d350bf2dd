"""Variants of an op: what it is once a request has determined which inputs are sent, and its second type variable.

A variant is an op of its own, with the sent inputs alone and one dtype for the second variable. So each has its own
programs, and nothing that evaluates ops knows of either. Parameters are the last of its inputs.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from pullback.ops._claims import Array, Arrays, Claim, Formula, Surrogate
from pullback.ops._op import Op
from pullback.ops._parameters import ParameterSet
from pullback.ops._rules import Function, filled, many, sent
from pullback.ops._slots import Example, Input

_KEPT = "_variants"
Spread: TypeAlias = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Variant(Op):
    """The op ``of`` with some of its optional inputs, and with one dtype for its second type variable.

    The parameters are inputs behind the others; a request leaves out those that are ``left_out``, all or none.
    """

    of: Op = field(kw_only=True)
    left_out: tuple[str, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        """Check nothing: what follows from a valid declaration is valid."""

    @property
    def has_variants(self) -> bool:
        """No: it is one."""
        return False

    @property
    def general(self) -> Op:
        """The op that has all inputs."""
        return self.of

    @property
    def held(self) -> tuple[str, ...]:
        """The names of the parameters that a request leaves out."""
        return self.left_out

    @property
    def every_input(self) -> tuple[Input, ...]:
        """The inputs, which have the parameters."""
        return self.inputs

    @property
    def own_parameters(self) -> ParameterSet:
        """Those of the op."""
        return self.of.own_parameters


def variant(op: Op, sent: Collection[str], second: str | None = None) -> Op:
    """Return an op for requests that send the inputs ``sent``, where its second type variable is ``second``.

    Inputs that are not optional count as sent. Equal calls return one op; an op without optional inputs, a second type
    variable and parameters is its only variant. ``second`` is by default the first dtype of the variable.
    """
    if not op.has_variants:
        return op
    inputs = tuple([slot for slot in op.inputs if not slot.optional or slot.name in sent])
    names = tuple([each.name for each in op.parameters])
    held = names if set(names).isdisjoint(sent) else ()
    kept: dict[tuple[Any, ...], Op] = vars(op).setdefault(_KEPT, {})
    second = second or next(iter(op.second_dtypes), None)
    key = second, held, *(slot.name for slot in inputs)
    if key not in kept:
        kept.setdefault(key, _made(op, inputs, second, held))
    return kept[key]


def closed(op: Op) -> Op:
    """Return an op without parameters: the page's own values are constants of its functions. Equal calls return one."""
    if not op.parameters:
        return op
    kept: dict[tuple[Any, ...], Op] = vars(op).setdefault(_KEPT, {})
    if ("closed",) not in kept:
        own = {each.name: getattr(op, each.name) for each in fields(Op)}
        spread = _Spread(tuple([slot.name for slot in op.inputs]), tuple([each.value for each in op.parameters]))
        names = tuple([name for name in op.null_gradients if name in spread.slots])
        own |= {**spread.functions(op), "parameters": (), "null_gradients": names}
        kept.setdefault(("closed",), Op(**own))
    return kept[("closed",)]


def choices_of_inputs(op: Op) -> list[tuple[str, ...]]:
    """Return every choice of optional inputs that a request may send: all of them first, none of them last."""
    names = op.optional_names
    return [choice for count in range(len(names), -1, -1) for choice in combinations(names, count)]


def _made(op: Op, inputs: tuple[Input, ...], second: str | None, held: tuple[str, ...]) -> Variant:
    own = {each.name: getattr(op, each.name) for each in fields(Op)}
    names, parameters = [slot.name for slot in inputs], [each.name for each in op.parameters]
    every = [*names, *parameters]
    spread = _Spread((*(slot.name if slot.name in names else None for slot in op.inputs), *parameters))
    # Where rows are independent, all of them use the parameters.
    has_rows = callable(op.batching) or op.batching != "none"
    own |= {
        "inputs": tuple([_of_one(op, slot, second) for slot in (*inputs, *(each.slot for each in op.parameters))]),
        "outputs": tuple([_of_one(op, slot, second) for slot in op.outputs]),
        "examples": tuple(_examples(op, names)),
        "shared": (*(name for name in op.shared if name in names), *(parameters if has_rows else ())),
        "null_gradients": tuple([name for name in op.null_gradients if name in every]),
    }
    if len(names) < len(op.inputs):
        own |= spread.functions(op)
    if op.validate is not None and parameters:
        own["validate"] = _of_names(op.validate, frozenset(parameters))
    return Variant(**own, of=op, left_out=held)


def _of_names(validate: Callable[..., None], others: frozenset[str]) -> Callable[..., None]:
    """Return ``validate`` for inputs among which are parameters, which it does not get."""

    def validated(inputs: Mapping[str, Array], attrs: Any) -> None:
        validate({name: x for name, x in inputs.items() if name not in others}, attrs)

    return validated


def _of_one(op: Op, slot: Any, second: str | None) -> Any:
    """Return a slot of the second type variable with one dtype; any other as it is."""
    return replace(slot, dtypes=(second,)) if second and slot.dtypes == op.second_dtypes else slot


def _examples(op: Op, names: Sequence[str]) -> list[Example]:
    """Return the examples with these inputs; if there are none, those with more, without the others."""
    found = [example for example in op.examples if set(example.inputs) == set(names)]
    more = [example for example in op.examples if set(example.inputs) > set(names)]
    return found or [replace(example, inputs={name: example.inputs[name] for name in names}) for example in more]


@dataclass(frozen=True)
class _Spread:
    """Functions of the sent inputs from an author's, which take all by position; ``slots`` has ``None`` for others.

    ``own`` are the values of parameters, which follow.
    """

    slots: tuple[str | None, ...]
    own: tuple[Array, ...] = ()

    def functions(self, op: Op) -> dict[str, Any]:
        """Return the functions of an op as functions of the sent inputs."""
        return {
            "function": self.function(op.function),
            "reference": None if op.reference is None else self.function(op.reference),
            "sample": None if op.sample is None else self.sample(op.sample),
            "claim": self.claim(op.claim),
        }

    def _all(self, values: Sequence[Any]) -> list[Any]:
        return [*filled(self.slots, values), *self.own]

    def _directions(self, values: Sequence[Any]) -> list[Any]:
        return [*filled(self.slots, values), *map(np.zeros_like, self.own)]

    def _sent(self, result: Any) -> list[Any]:
        return sent(self.slots, many(result)[: len(self.slots)])

    def function(self, function: Function) -> Function:
        """Return a function of the sent inputs."""

        @functools.wraps(function)
        def spread(*xs: Any, **attrs: Any) -> Any:
            is_numpy = all(isinstance(x, np.ndarray) for x in xs)
            own = self.own if is_numpy else map(tf.convert_to_tensor, self.own)
            return function(*filled(self.slots, xs), *own, **attrs)

        return spread

    def sample(self, sample: Callable[..., Mapping[str, Array]]) -> Callable[..., dict[str, Array]]:
        """Return a function that draws the sent inputs."""

        def drawn(rng: np.random.Generator, dtype: str, attrs: Any) -> dict[str, Array]:
            return {name: x for name, x in sample(rng, dtype, attrs).items() if name in self.slots}

        return drawn

    def claim(self, claim: Callable[[Any], Claim]) -> Callable[[Any], Claim]:
        """Return the claim about the sent inputs."""

        def of_sent(attrs: Any) -> Claim:
            whole = claim(attrs)
            first, second = whole.first, whole.second
            if isinstance(first, Surrogate):
                first = Surrogate(self._first_surrogate(first.of))
            elif isinstance(first, Formula):
                first = Formula(self._gradients(first.vjp))
            if isinstance(second, Surrogate):
                second = Surrogate(self._gradients(second.of))
            elif isinstance(second, Formula):
                second = Formula(self._gradients(second.vjp, self._directions))
            return replace(whole, first=first, second=second)

        return of_sent

    def _first_surrogate(self, of: Callable[..., Any]) -> Callable[..., Any]:
        def outputs(primals: Arrays, at: Arrays) -> Any:
            return of(self._all(primals), self._all(at))

        return outputs

    def _gradients(self, gradients: Callable[..., Any], more_of: Spread | None = None) -> Callable[..., Any]:
        """Return a function of primals, cotangents and, if it takes them, primals or their cotangents again."""

        def of_sent(primals: Arrays, dys: Arrays, *more: Arrays) -> list[Any]:
            return self._sent(gradients(self._all(primals), dys, *map(more_of or self._all, more)))

        return of_sent
