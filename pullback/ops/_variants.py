"""Variants of an op: what it is once a request has determined which inputs are sent, and its second type variable.

A variant is an op of its own, with the sent inputs alone and one dtype for the second variable. So each has its own
programs, and nothing that evaluates ops knows of either.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import Any

import numpy as np

from pullback.ops._claims import Array, Arrays, Claim, Formula, Surrogate
from pullback.ops._op import Function, Op
from pullback.ops._rules import filled, many, sent
from pullback.ops._slots import Example, Input

_KEPT = "_variants"


@dataclass(frozen=True, eq=False, repr=False)
class Variant(Op):
    """The op ``of`` with some of its optional inputs, and with one dtype for its second type variable."""

    of: Op = field(kw_only=True)

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


def variant(op: Op, sent: Collection[str], second: str | None = None) -> Op:
    """Return an op for requests that send the inputs ``sent``, where its second type variable is ``second``.

    Inputs that are not optional count as sent. Equal calls return one op; an op without optional inputs and without a
    second type variable is its only variant. ``second`` is by default the first dtype of the variable.
    """
    inputs = tuple([slot for slot in op.inputs if not slot.optional or slot.name in sent])
    if not op.has_variants:
        return op
    kept: dict[tuple[Any, ...], Op] = vars(op).setdefault(_KEPT, {})
    second = second or next(iter(op.second_dtypes), None)
    key = second, *(slot.name for slot in inputs)
    if key not in kept:
        kept.setdefault(key, _made(op, inputs, second))
    return kept[key]


def choices_of_inputs(op: Op) -> list[tuple[str, ...]]:
    """Return every choice of optional inputs that a request may send: all of them first, none of them last."""
    names = op.optional_names
    return [choice for count in range(len(names), -1, -1) for choice in combinations(names, count)]


def _made(op: Op, inputs: tuple[Input, ...], second: str | None) -> Variant:
    own = {each.name: getattr(op, each.name) for each in fields(Op)}
    names = [slot.name for slot in inputs]
    spread = _Spread(tuple([slot.name if slot.name in names else None for slot in op.inputs]))
    own |= {
        "inputs": tuple([_of_one(op, slot, second) for slot in inputs]),
        "outputs": tuple([_of_one(op, slot, second) for slot in op.outputs]),
        "examples": tuple(_examples(op, names)),
        "shared": tuple([name for name in op.shared if name in names]),
        "null_gradients": tuple([name for name in op.null_gradients if name in names]),
    }
    if len(names) < len(op.inputs):
        own["function"] = spread.function(op.function)
        own["reference"] = None if op.reference is None else spread.function(op.reference)
        own["sample"] = None if op.sample is None else spread.sample(op.sample)
        own["claim"] = spread.claim(op.claim)
    return Variant(**own, of=op)


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
    """Functions of the sent inputs from an author's, which take all by position; ``slots`` has ``None`` for others."""

    slots: tuple[str | None, ...]

    def _all(self, values: Sequence[Any]) -> list[Any]:
        return filled(self.slots, values)

    def _sent(self, result: Any) -> list[Any]:
        return sent(self.slots, many(result))

    def function(self, function: Function) -> Function:
        """Return a function of the sent inputs."""

        @functools.wraps(function)
        def spread(*xs: Any, **attrs: Any) -> Any:
            return function(*self._all(xs), **attrs)

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
                second = Formula(self._gradients(second.vjp))
            return replace(whole, first=first, second=second)

        return of_sent

    def _first_surrogate(self, of: Callable[..., Any]) -> Callable[..., Any]:
        def outputs(primals: Arrays, at: Arrays) -> Any:
            return of(self._all(primals), self._all(at))

        return outputs

    def _gradients(self, gradients: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of primals, cotangents and, if it takes them, primals or their cotangents again."""

        def of_sent(primals: Arrays, dys: Arrays, *more: Arrays) -> list[Any]:
            return self._sent(gradients(self._all(primals), dys, *map(self._all, more)))

        return of_sent
