"""Derived ops: the vjp and the jvp of an op are ops, and so are theirs.

``f.vjp`` takes the inputs of ``f`` and a cotangent for each differentiable output, and returns a cotangent for each
differentiable input. ``f.jvp`` takes the inputs and a tangent for each differentiable input, and returns a tangent for
each differentiable output. Their contracts follow from that of ``f``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from app.autodiff.binding import bind_shapes, bind_spec, has_order
from app.autodiff.transforms import Signature, Transform, signature
from app.errors import NotFound, Unprocessable, did_you_mean, wrong
from app.tensors.casting import describe
from ops import FLOATS, Attrs, Claim, Derivative, Example, Input, Op, Output, ParameterSet, closed, variant

Derivation: TypeAlias = Literal["vjp", "jvp"]
DERIVATIONS: tuple[Derivation, ...] = get_args(Derivation)
Slot: TypeAlias = Input | Output

_KEPT = "_derived"
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


@dataclass(frozen=True, eq=False, repr=False)
class DerivedOp(Op):
    """A derivative of the op ``of``. The ``transforms`` derive it from the registered op ``base``.

    ``given`` maps each input that ``of`` does not have, a direction, to the slot of ``of`` that it is a direction of.
    """

    of: Op = field(kw_only=True)
    given: Mapping[str, str] = field(kw_only=True)
    base: Op = field(kw_only=True)
    transforms: tuple[Transform, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        """Check nothing: what follows from a valid contract is valid."""

    @property
    def owner(self) -> str:
        """That of the registered op."""
        return self.base.owner

    @property
    def derivation(self) -> list[str]:
        """The derivations that lead from the registered op to this one, such as ``["vjp", "jvp"]``."""
        return [transform.rule for transform in self.transforms]

    @property
    def depth(self) -> int:
        """The number of derivations."""
        return len(self.transforms)

    @property
    def needs_linear(self) -> bool:
        """Whether it exists only for attributes with which the gradient of the registered op is linear."""
        return self.transforms[0].rule == "jvp"

    @property
    def has_variants(self) -> bool:
        """Whether the registered op has."""
        return self.base.has_variants

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Those of the registered op that are floats."""
        return _floats(self.base.dtypes)

    @property
    def second_dtypes(self) -> tuple[str, ...]:
        """Those of the registered op that are floats, or all if there are none."""
        return _floats(self.base.second_dtypes)

    @property
    def second_names(self) -> frozenset[str]:
        """Those of the registered op."""
        return self.base.second_names

    @property
    def held(self) -> tuple[str, ...]:
        """Those of the registered op."""
        return self.base.held

    @property
    def own_parameters(self) -> ParameterSet:
        """Those of the registered op."""
        return self.base.own_parameters

    @property
    def general(self) -> Op:
        """What is derived in the same way from the registered op that has all inputs."""
        every = self.base.general
        return self if every is self.base else derived(every, self.name, self.derivation)


def origin(op: Op) -> tuple[Op, tuple[Transform, ...]]:
    """Return the registered op, and the transforms that derive an op from it."""
    return (op.base, op.transforms) if isinstance(op, DerivedOp) else (op, ())


def derivations(op: Op) -> tuple[Derivation, ...]:
    """Return the derivations of an op that are ops."""
    is_differentiable = all(any(_is_differentiable(op, slot) for slot in side) for side in (op.inputs, op.outputs))
    claim = op.claim(op.attrs())
    if not is_differentiable or op.depth == DEEPEST or not has_order(op, claim, 1):
        return ()
    return DERIVATIONS if claim.linear else ("vjp",)


def derived(op: Op, name: str, sequence: list[str]) -> Op:
    """Derive an op by a sequence of derivations; raise ``NotFound``, with its whole ``name``, if one is impossible."""
    if len(sequence) > DEEPEST:
        raise NotFound(f"op {name!r} is derived {len(sequence)} times; expected at most {DEEPEST} derivations")
    for derivation in sequence:
        if derivation not in DERIVATIONS:
            raise NotFound(f"unknown derivation {derivation!r} in {name!r}; {did_you_mean(derivation, DERIVATIONS)}")
        op = derive(op, derivation)
    return op


def variant_of(op: Op, sent: Mapping[str, str | None]) -> Op:
    """Return an op, registered or derived, for requests that send these inputs, with the dtypes of typed tensors.

    The second type variable is the dtype of the first typed tensor that has it. Equal calls return one op. Raises
    ``Unprocessable`` for a dtype that the variable does not have.
    """
    if not op.has_variants:
        return op
    (base, transforms), slots = origin(op), [slot for slot in op.inputs if slot.name in op.second_names]
    typed = {slot: dtype for slot in slots if (dtype := sent.get(slot.name)) is not None}
    for slot, dtype in typed.items():
        if dtype not in slot.dtypes:
            message, expected = "typed tensors are not cast", f"one of {', '.join(slot.dtypes)}"
            got = describe(dtype).removeprefix("the string ")
            raise wrong(("inputs", slot.name, "dtype"), message, expected=expected, got=got)
    second = next(iter(typed.values()), slots[0].dtypes[0] if slots else None)
    return derived(variant(base, sent, second), op.name, [transform.rule for transform in transforms])


def with_values(op: Op, values: ParameterSet) -> Op:
    """Return a registered op whose parameters have other values; it shares no trace with the op."""
    if values is op.own_parameters:
        return op
    return replace(op, parameters=tuple([replace(each, value=values.arrays[each.name]) for each in op.parameters]))


def without_parameters(op: Op) -> Op:
    """Return an op, registered or derived, in which the page's own values of parameters are constants."""
    base, transforms = origin(op)
    return derived(closed(base), op.name, [transform.rule for transform in transforms]) if base.parameters else op


def known_derived(op: Op, sequence: Iterable[str]) -> Op | None:
    """Return what ``derived`` has returned for an op before, ``None`` if it has not."""
    found: Op | None = op
    for derivation in sequence:
        found = None if found is None else vars(found).get(_KEPT, {}).get(derivation)
    return found


def with_names(op: Op) -> Op:
    """Return an op of a graph of ops such that TensorFlow's errors name the node; any other op as it is."""
    base, transforms = origin(op)
    return derived(base.with_names, op.name, [transform.rule for transform in transforms])


def derive(op: Op, derivation: Derivation) -> DerivedOp:
    """Return the vjp or jvp of an op; raise ``NotFound`` if nothing is differentiable. Equal calls return one op."""
    # An op keeps those that are derived from it, so that they go with it.
    known: dict[Derivation, DerivedOp] = vars(op).setdefault(_KEPT, {})
    if derivation not in known:
        known.setdefault(derivation, _derive(op, derivation))
    return known[derivation]


def _derive(op: Op, derivation: Derivation) -> DerivedOp:
    base, transforms = origin(op)
    inputs, outputs = ({slot.name: slot for slot in slots} for slots in (base.inputs, base.outputs))
    before: Signature[Slot] = signature(transforms, inputs, outputs, base.taken_names)
    names = before.names[-1]
    parameters = {each.name for each in op.parameters}
    wrt = tuple([slot.name for slot in op.inputs if slot.name not in parameters and _is_differentiable(op, slot)])
    differentiable = {slot.name for slot in op.outputs if _is_differentiable(op, slot)}
    of = tuple([source for source, name in names.items() if name in differentiable])
    if not wrt or not of:
        side = "input" if not wrt else "output"
        raise NotFound(f"op {op.name} has no {derivation}: no {side} of it is differentiable")
    transforms = (*transforms, Transform(derivation, wrt, of))
    after: Signature[Slot] = signature(transforms, inputs, outputs, base.taken_names)
    given, new_inputs, new_outputs = _slots(derivation, names, after)
    # The cotangent of an input that all rows use is a sum over the rows: they depend on each other.
    has_sums = derivation == "vjp" and not set(wrt).isdisjoint(op.shared)
    shared = (*op.shared, *(leaf for leaf, slot in given.items() if slot in op.shared))
    slots = [replace(slot, dtypes=_kind(slot)[0]) for slot in op.inputs]
    return DerivedOp(
        name=f"{op.name}.{derivation}",
        summary=SUMMARIES[derivation].format(op.name),
        doc=DOCS[derivation].format(op.name),
        function=base.function,
        inputs=tuple(sorted((*slots, *new_inputs), key=lambda slot: slot.name in parameters)),
        outputs=tuple(new_outputs),
        mechanism=base.mechanism,
        source=base.source,
        examples=tuple(_examples(op, given)),
        attrs=base.attrs,
        claim=partial(_claim, base, transforms),
        modes=base.modes,
        batching="none" if has_sums else op.batching,
        shared=() if has_sums else shared,
        cost=None if (cost := op.cost) is None else lambda dims: WORK * cost(dims),
        sizes=base.sizes,
        validate=base.validate,
        singular=base.singular,
        parameters=base.parameters,
        holomorphic=op.holomorphic and derivation == "jvp",
        of=op,
        given=given,
        base=base,
        transforms=transforms,
    )


def _slots(
    derivation: Derivation, names: Mapping[str, str], after: Signature[Slot]
) -> tuple[dict[str, str], list[Input], list[Output]]:
    """Return the slot that each new input is a direction of, the new inputs, and the outputs.

    A vjp has directions of outputs, whose names are given, and results for inputs; a jvp has directions of inputs and
    results for outputs.
    """
    noun, is_vjp = NOUN[derivation], derivation == "vjp"
    given = {leaf: names[source] if is_vjp else source for source, leaf in after.seeds[-1].items()}
    inputs = [
        Input(leaf, *_kind(of := after.leaves[leaf]), doc=f"{noun} of {slot}", optional=is_optional(of))
        for leaf, slot in given.items()
    ]
    results = zip(after.names[-1].items(), after.levels[-1].values(), strict=True)
    outputs = [
        Output(name, *_kind(slot), doc=f"{noun} of {source if is_vjp else names[source]}")
        for (source, name), slot in results
    ]
    return given, inputs, outputs


def is_optional(slot: Slot) -> bool:
    """Return whether a request need not send an input, or a direction of it."""
    return isinstance(slot, Input) and slot.optional


def _is_differentiable(op: Op, slot: Slot) -> bool:
    """Return whether derivatives reach a slot in the float dtypes of the op's type variable."""
    return slot.differentiable and any(op.dtype_of(slot, dtype) in FLOATS for dtype in op.dtypes)


def _kind(slot: Slot) -> tuple[tuple[str, ...], tuple[str | int, ...]]:
    """Return the dtypes and the shape of a slot; of a type variable's dtypes, only floats have derivatives."""
    return _floats(slot.dtypes), slot.shape


def _floats(dtypes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([dtype for dtype in dtypes if dtype in FLOATS]) or dtypes


def _claim(base: Op, transforms: tuple[Transform, ...], attrs: Attrs) -> Claim:
    """Return the claim of a derived op: the gradient of a vjp is the second order, whose author claims what it is.

    If the author declares that there is none, ``second`` is ``None`` for every derived op: none has a derivative.
    """
    claim = base.claim(attrs)
    second = None if claim.second is None else Derivative()
    if transforms[0].rule == "jvp":
        return Claim(second=second, linear=claim.linear)
    return Claim(claim.second or Derivative(), second) if len(transforms) == 1 else Claim(second=second)


def _examples(op: Op, given: Mapping[str, str]) -> Iterator[Example]:
    """Yield the op's examples with a direction of ones for each new input, where it exists and the shapes are known."""
    pairs = {slot.name for slot in (*op.inputs, *op.outputs) if slot.is_complex}
    for example in op.examples:
        run = {"device": "", "max_elements": 0}
        shapes = {name: np.shape(value) for name, value in example.inputs.items()}
        one = variant_of(op, dict.fromkeys(shapes))
        try:
            shapes |= bind_shapes(bind_spec(one, example.attrs, None, mode=op.modes[0], **run), shapes)
        except Unprocessable:
            continue
        ones = {leaf: _ones(shapes[of], of in pairs) for leaf, of in given.items() if of in shapes}
        yield Example(example.name, {**example.inputs, **ones}, example.attrs)


def _ones(shape: tuple[int, ...], are_pairs: bool) -> Any:
    """Return ones as nested lists; a complex one is the pair (1, 0)."""
    ones = np.ones(shape)
    if are_pairs:
        ones[..., 1] = 0
    return ones.tolist()
