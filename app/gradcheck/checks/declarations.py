"""Declarations: whether the op bears out what its inputs declare: kinks, poles, and which have no gradient.

A declared number gets a note if the op is smooth there wherever it is tried: in all numbers of the input and in single
ones, beside drawn numbers, those of the examples, zeros, equal ones and the declared ones of the other inputs, with all
attributes that the checks try. Whatever cannot be evaluated gets no note.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.autodiff.derivatives import Kind
from app.autodiff.draws import draw
from app.autodiff.point import Arrays
from app.errors import OpFailed, Unprocessable
from app.gradcheck import choices, rounding
from app.gradcheck.comparison import first_step
from app.gradcheck.rows import Rows, numbers_of, stack
from app.gradcheck.sample import sample_at
from app.gradcheck.target import Target
from app.runtime.modes import Key
from ops import FLOATS, Array, Derivative, Input
from pullback.gradcheck.verdict import Finding, Subject
from pullback.wording import counted

# The degree of the polynomials, and the first one whose coefficient must vanish.
DEGREE, FIRST_ZERO = 16, 11
# How far the polynomials reach, as a fraction of the first step of a numeric derivative: an approximate kink is near.
REACH = 2.0**-4
# How large a coefficient that vanishes may be, in roundings of the largest number; and how many of these are a move.
ROUNDINGS, MOVES = 256.0, 64.0
NAME = "declarations"
# How many drawn points a declaration is tried at, and in how many single numbers of each.
DRAWN, ALONE = 2, 12


# A smooth function is a polynomial near a number, but for rounding: its Chebyshev coefficients vanish from some
# degree on. Those of a kink, a jump or a pole do not, in the function or in any derivative.
@dataclass(frozen=True)
class Line:
    """A line through a point, along which the numbers of one input move, from -1 to 1 times ``way``."""

    inputs: Arrays
    name: str
    way: Array


def reach(target: Target, name: str, x: Array) -> Array:
    """Return how far the numbers of an input move from x."""
    return REACH * first_step(target.op, name, x)


def values_along(target: Target, lines: Sequence[Line], last: Kind) -> dict[Key, Array]:
    """Return values at the nodes of lines of one shape, as (lines, nodes, ...); none where that is too much work.

    Raises ``OpFailed`` and ``Unprocessable`` where the op cannot be evaluated.
    """
    point = target.bind(lines[0].inputs, target.widest)
    count = len(lines) * (DEGREE + 1)
    if count * max(numbers_of(point), point.cost) > target.options.work:
        return {}
    nodes = np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
    nodes[DEGREE // 2] = 0.0
    rows = stack([{**p.inputs, p.name: p.inputs[p.name] + node * p.way} for p in lines for node in nodes])
    sample = sample_at(point, target.rng("values"), last=last)
    dys, vectors = (
        {name: np.broadcast_to(x, (count, *x.shape)) for name, x in named.items()}
        for named in (sample.cotangents, sample.vectors)
    )
    values = Rows(point, target.checkpoint).values_up_to(last, rows, dys, vectors)
    return {key: np.reshape(value, (len(lines), len(nodes), -1)) for key, value in values.items()}


def are_polynomials(values: Array) -> bool:
    """Return whether values at nodes are finite, and their highest Chebyshev coefficients vanish along each line."""
    y = np.asarray(values, np.float64)
    k = np.arange(FIRST_ZERO, DEGREE + 1)[:, None]
    weights = np.cos(np.pi * k * np.arange(DEGREE + 1) / DEGREE) * 2 / DEGREE
    weights[:, [0, -1]] /= 2
    highest = np.abs(np.einsum("kn,pni->pki", weights, y))
    return bool(np.isfinite(y).all() and (highest.max(axis=(1, 2), initial=0.0) <= _rounding(values)).all())


def have_moved(values: Array) -> bool:
    """Return whether values at nodes differ along a line by more than rounding."""
    y = np.asarray(values, np.float64)
    return bool((np.ptp(y, axis=1).max(axis=1, initial=0.0) > MOVES * _rounding(values)).any())


def _rounding(values: Array) -> Array:
    """Return the rounding of the values along each line; integers do not round."""
    unit = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
    return ROUNDINGS * unit * np.abs(np.asarray(values, np.float64)).max(axis=(1, 2), initial=0.0)


@dataclass(frozen=True)
class Edge:
    """A number at which an input declares a kink or a pole."""

    slot: Input
    kind: str
    number: float


def check(target: Target) -> Iterator[Finding]:
    """Note each doubtful declaration; with ``strict_claims``, it is a failure."""
    subject, edges, fixed = Subject(NAME, dtype=target.widest), _edges(target), _without_gradient(target)
    if why := _why_not(target, len(edges) + len(fixed)):
        yield Finding(subject, "skipped", why)
        return
    targets = _targets(target)
    of_examples = targets[: len(choices.of_examples(target.op))]
    doubts = [(edge.slot.name, _of_edge(edge)) for edge in edges if _is_smooth_at(edge, targets)]
    doubts += [(slot.name, _of_input(slot)) for slot in fixed if _moves_smoothly(of_examples, slot.name)]
    for name, sentence in doubts:
        verdict = "fail" if target.options.strict_claims else "pass"
        yield Finding(replace(subject, input=name), verdict, sentence, note=True)
    if not doubts:
        yield Finding(subject, "pass", f"nothing contradicts {counted(len(edges) + len(fixed), 'declaration')}")


def _why_not(target: Target, count: int) -> str:
    if not count:
        return "no input declares a kink, a pole, or that it has no gradient"
    if target.are_attrs_given:
        return "the attributes are given"
    if rounding.eps(target.widest) > rounding.eps("float32"):
        return f"{target.widest} has too few digits"
    return "" if target.is_first else "checked once, with the attributes of the first example"


def _of_edge(edge: Edge) -> str:
    name, kind, number = edge.slot.name, edge.kind, edge.number
    cure = f'remove it from Input("{name}", {kind}s=...), because checks keep away from it'
    return f"{name} declares a {kind} at {number:g}, but values and derivatives are finite and smooth there: {cure}"


def _of_input(slot: Input) -> str:
    cure = f'leave differentiable=False out of Input("{slot.name}", ...), and return its gradient'
    return f"{slot.name} is declared not differentiable, but moves the outputs smoothly: {cure}"


def _edges(target: Target) -> list[Edge]:
    slots = [slot for slot in target.op.inputs if target.op.dtype_of(slot, target.widest) in FLOATS]
    kinds = [(slot, kind, numbers) for slot in slots for kind, numbers in (("kink", slot.kinks), ("pole", slot.poles))]
    return [Edge(slot, kind, number) for slot, kind, numbers in kinds for number in dict.fromkeys(numbers)]


def _without_gradient(target: Target) -> list[Input]:
    slots = [slot for slot in target.op.inputs if not slot.differentiable]
    return [slot for slot in slots if target.op.dtype_of(slot, target.widest) in FLOATS]


def _targets(target: Target) -> list[Target]:
    """Return a target for each choice of attributes that the checks try, those of the examples first."""
    op, options = target.op, replace(target.options, orders=(1, 2))
    every = (*choices.of_examples(op), *choices.of_no_example(op, options.seed))
    return [replace(target, attrs=attrs, options=options) for attrs in every]


def _bases(target: Target) -> list[Arrays]:
    """Return drawn points, and the examples with these attributes. Raises ``Unprocessable`` if the op rejects one."""
    rng = target.rng("declarations")
    drawn = [draw(target.op, target.attrs, target.widest, rng) for _ in range(DRAWN)]
    given = [example.inputs for example in target.op.examples if dict(example.attrs) == dict(target.attrs)]
    return [target.bind(inputs, target.widest).inputs for inputs in (*drawn, *given)]


def _lines(target: Target, edge: Edge) -> Iterator[list[Line]]:
    """Yield lines through an edge, those of one shape together."""
    name, number, rng = edge.slot.name, edge.number, target.rng("lines")
    far = reach(target, name, np.asarray(number))
    for base in _bases(target):
        x = base[name]
        way = far * rng.uniform(0.5, 1, x.shape) * rng.choice([-1.0, 1.0], x.shape)
        whole = np.full_like(x, number)
        found = [Line({**beside, name: whole}, name, way) for beside in (base, *_beside(target, edge, base))]
        alone = () if target.batching == "elementwise" else rng.permutation(x.size)[:ALONE]
        for i in alone:
            is_moved = np.arange(x.size).reshape(x.shape) == i
            found.append(Line({**base, name: np.where(is_moved, whole, x)}, name, np.where(is_moved, way, 0.0)))
        yield found


def _beside(target: Target, edge: Edge, base: Arrays) -> Iterator[Arrays]:
    """Yield a point with the other inputs of floats at 0, at the number of the edge, and at what they declare."""
    others = [slot for slot in target.op.inputs if slot.name != edge.slot.name]
    others = [slot for slot in others if target.op.dtype_of(slot, target.widest) in FLOATS]
    for number in dict.fromkeys((0.0, edge.number)) if others else ():
        yield {**base, **{slot.name: np.full_like(base[slot.name], number) for slot in others}}
    declared = {slot.name: (*slot.kinks, *slot.poles) for slot in others if slot.kinks or slot.poles}
    for i in range(max(map(len, declared.values()), default=0)):
        yield {**base, **{name: np.full_like(base[name], some[i % len(some)]) for name, some in declared.items()}}


def _is_smooth_at(edge: Edge, targets: Sequence[Target]) -> bool:
    """Return whether values and derivatives are polynomials along all lines through an edge."""
    try:
        for target in targets:
            for lines in _lines(target, edge):
                values = values_along(target, lines, target.last)
                if not values or not all(map(are_polynomials, values.values())):
                    return False
    except (OpFailed, Unprocessable):
        return False
    return True


def _moves_smoothly(targets: Sequence[Target], name: str) -> bool:
    """Return whether an input moves the outputs at some point, and whether they are smooth at all of them."""
    has_moved = False
    try:
        for target in targets:
            if not isinstance(target.samples[0].claim.first, Derivative):
                return False
            for base in _bases(target):
                way = reach(target, name, base[name])
                values = values_along(target, [Line(base, name, way)], "outputs")
                live = [values["outputs", y.name] for y in target.op.outputs if y.differentiable] if values else []
                if not live or not all(map(are_polynomials, live)):
                    return False
                has_moved = has_moved or any(map(have_moved, live))
    except (OpFailed, Unprocessable):
        return False
    return has_moved
