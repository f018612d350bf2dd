"""Derived ops: the vjp and the jvp of an op are ops, and so are theirs.

``f.vjp`` takes the inputs of ``f`` and a cotangent for each differentiable output, and returns a cotangent for each
differentiable input. ``f.jvp`` takes the inputs and a tangent for each differentiable input, and returns a tangent for
each differentiable output. Nobody writes their contracts: they follow from that of ``f``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from app.autodiff.binding import bind_shapes, bind_spec
from app.autodiff.words import Layout, Step, jvp, vjp, walk
from app.errors import NotFound, Unprocessable, did_you_mean
from ops import FLOATS, Attrs, Claim, Example, Input, Op, Output

Derivation: TypeAlias = Literal["vjp", "jvp"]
DERIVATIONS: tuple[Derivation, ...] = get_args(Derivation)
Slot: TypeAlias = Input | Output

# The most derivations of an op, and how much more work each is than what it derives.
DEEPEST, WORK = 4, 3
NOUN: Mapping[Derivation, str] = {"vjp": "the cotangent", "jvp": "the tangent"}
SUMMARIES: Mapping[Derivation, str] = {
    "vjp": "The vjp of {}: pulls cotangents of its outputs back to its inputs",
    "jvp": "The jvp of {}: pushes tangents of its inputs forward to its outputs",
}
DOCS: Mapping[Derivation, str] = {
    "vjp": "For y = {}(x): dx = (∂y/∂x)ᵀ dy, where ∂y/∂x is the derivative that the gradient of the op stands for. "
    "With several outputs, dx is the sum over all of them.",
    "jvp": "For y = {}(x): ty = (∂y/∂x) tx, where ∂y/∂x is the derivative that the gradient of the op stands for. With "
    "several inputs, ty is the sum over all of them. It is the vjp of the vjp with respect to its cotangent.",
}


@dataclass(frozen=True, eq=False)
class DerivedOp(Op):
    """A derivative of the op ``of``. The steps of ``word`` derive it from the registered op ``base``.

    ``given`` maps each input that ``of`` does not have, a direction, to the slot of ``of`` that it is a direction of.
    """

    of: Op = field(kw_only=True)
    given: Mapping[str, str] = field(kw_only=True)
    base: Op = field(kw_only=True)
    word: tuple[Step, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        """Check nothing: what follows from a valid contract is valid."""

    @property
    def owner(self) -> str:
        """The name of the registered op."""
        return self.base.name

    @property
    def derivation(self) -> list[str]:
        """The derivations that lead from the registered op to this one, such as ``["vjp", "jvp"]``."""
        return [step.rule for step in self.word]

    @property
    def needs_linear(self) -> bool:
        """Whether it exists only for attributes with which the gradient of the registered op is linear."""
        return self.word[0].rule == "jvp"


def origin(op: Op) -> tuple[Op, tuple[Step, ...]]:
    """Return the registered op, and the word that derives an op from it."""
    return (op.base, op.word) if isinstance(op, DerivedOp) else (op, ())


def derivations(op: Op) -> tuple[Derivation, ...]:
    """Return the derivations of an op that are ops."""
    is_differentiable = all(any(is_live(op, slot) for slot in side) for side in (op.inputs, op.outputs))
    if not is_differentiable or len(origin(op)[1]) == DEEPEST:
        return ()
    return DERIVATIONS if op.claim(op.attrs()).linear else ("vjp",)


def derived(op: Op, name: str, word: list[str]) -> Op:
    """Derive an op step by step; raise ``NotFound``, with its whole ``name``, for a word that derives nothing."""
    if len(word) > DEEPEST:
        raise NotFound(f"op {name!r} is derived {len(word)} times; expected at most {DEEPEST} derivations")
    for derivation in word:
        if derivation not in DERIVATIONS:
            raise NotFound(f"unknown derivation {derivation!r} in {name!r}; {did_you_mean(derivation, DERIVATIONS)}")
        op = derive(op, derivation)
    return op


@cache
def derive(op: Op, derivation: Derivation) -> DerivedOp:
    """Return the vjp or jvp of an op; raise ``NotFound`` if nothing is differentiable. Equal calls return one op."""
    base, word = origin(op)
    before = walk(word, _by_name(base.inputs), _by_name(base.outputs), base.attrs.model_fields)
    wrt = tuple([slot.name for slot in op.inputs if is_live(op, slot)])
    live = {slot.name for slot in op.outputs if is_live(op, slot)}
    of = tuple([source for source, name in before.names[-1].items() if name in live])
    if not wrt or not of:
        side = "input" if not wrt else "output"
        raise NotFound(f"op {op.name} has no {derivation}: no {side} of it is differentiable")
    word = (*word, vjp(wrt, of) if derivation == "vjp" else jvp(wrt, of))
    after: Layout[Slot] = walk(word, _by_name(base.inputs), _by_name(base.outputs), base.attrs.model_fields)
    # What each new input is a direction of: for a vjp, an output, and for a jvp, an input.
    names, noun = before.names[-1], NOUN[derivation]
    of_new = {leaf: source if derivation == "jvp" else names[source] for source, leaf in after.directions[-1].items()}
    inputs = [Input(leaf, *_kind(after.leaves[leaf]), doc=f"{noun} of {slot}") for leaf, slot in of_new.items()]
    outputs = [
        Output(name, *_kind(slot), doc=f"{noun} of {source if derivation == 'vjp' else names[source]}")
        for (source, name), slot in zip(after.names[-1].items(), after.levels[-1].values(), strict=True)
    ]
    return DerivedOp(
        name=f"{op.name}.{derivation}",
        summary=SUMMARIES[derivation].format(op.name),
        doc=DOCS[derivation].format(op.name),
        function=base.function,
        inputs=(*(replace(slot, dtypes=_kind(slot)[0]) for slot in op.inputs), *inputs),
        outputs=tuple(outputs),
        mechanism=base.mechanism,
        source=base.source,
        examples=tuple(_examples(op, of_new)),
        attrs=base.attrs,
        claim=partial(_claim, base, word),
        modes=base.modes,
        batching=base.batching,
        cost=None if op.cost is None else partial(_cost, op.cost),
        validate=base.validate,
        singular=base.singular,
        of=op,
        given=of_new,
        base=base,
        word=word,
    )


def is_live(op: Op, slot: Slot) -> bool:
    """Return whether derivatives reach a slot in the float dtypes of the op's type variable."""
    return slot.differentiable and any(op.dtype_of(slot, dtype) in FLOATS for dtype in op.dtypes)


def _by_name(slots: tuple[Input, ...] | tuple[Output, ...]) -> dict[str, Slot]:
    return {slot.name: slot for slot in slots}


def _kind(slot: Slot) -> tuple[tuple[str, ...], tuple[str | int, ...]]:
    """Return the dtypes and the shape of a slot; of the type variable's dtypes, only floats have derivatives."""
    dtypes = tuple(dtype for dtype in slot.dtypes if dtype in FLOATS) if len(slot.dtypes) > 1 else slot.dtypes
    return dtypes, slot.shape


def _claim(base: Op, word: tuple[Step, ...], attrs: Attrs) -> Claim:
    """Return the claim of a derived op: the gradient of a vjp is the second order, whose author claims what it is."""
    claim = base.claim(attrs)
    if word[0].rule == "jvp":
        return Claim(linear=claim.linear)
    return Claim(first=claim.second) if len(word) == 1 else Claim()


def _cost(of: Callable[[Mapping[str, Any]], int], dims: Mapping[str, Any]) -> int:
    return WORK * of(dims)


def _examples(op: Op, given: Mapping[str, str]) -> Iterator[Example]:
    """Yield the op's examples with a direction of ones for each new input, where it exists and the shapes are known."""
    for example in op.examples:
        run = {"device": "", "max_elements": 0}
        shapes = {name: np.shape(value) for name, value in example.inputs.items()}
        try:
            shapes |= bind_shapes(bind_spec(op, example.attrs, None, mode=op.modes[0], **run), shapes)
        except Unprocessable:
            continue
        ones = {leaf: np.ones(shapes[of]).tolist() for leaf, of in given.items()}
        yield Example(example.name, {**example.inputs, **ones}, example.attrs)
