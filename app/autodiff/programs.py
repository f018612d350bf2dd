"""The derivatives of an op as programs for ``app.runtime.modes``, which runs them in any mode.

Every derivative is a word of pullbacks, because only reverse over reverse honours a custom gradient at each order: a
jvp is the vjp of the vjp with respect to its cotangent, an hvp is the vjp of the vjp.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from app.autodiff.derived import origin
from app.autodiff.words import Layout, Step, vjp, walk
from app.runtime.calculus import Calculus
from app.runtime.modes import Key, Results
from ops import Op, OpFault, Tensor, located, many, rules_of

Level: TypeAlias = dict[str, Tensor | None]


class Reference(NamedTuple):
    """The leaf, or the output of the registered op, whose shape a leaf or a result has."""

    name: str
    is_leaf: bool


class Site(NamedTuple):
    """What a result, or a shape, is: the reference to its right shape, the function that returns it, and its order."""

    shape: Reference
    function: str
    order: int


@dataclass(frozen=True)
class Program:
    """A word over one op, for one dtype and one choice of static attributes.

    Its leaves are the inputs, the number attributes and the directions of each step. Its results are those of the last
    step and of the levels ``kept``, of which 0 has the op's outputs. If ``batched``, the directions of the last step
    and their results have a leading axis.
    """

    op: Op
    dtype: str
    static: tuple[tuple[str, Any], ...]
    word: tuple[Step, ...] = ()
    kept: tuple[int, ...] = ()
    batched: bool = False

    def __hash__(self) -> int:
        """Return the hash of the fields, computed once."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.op, self.dtype, self.static, self.word, self.kept))

    @property
    def owner(self) -> str:
        """The name of the registered op."""
        return self.op.owner

    @property
    def orders(self) -> int:
        """The number of nested pullbacks."""
        return sum(step.orders for step in (*origin(self.op)[1], *self.word))

    @property
    def has_few_shapes(self) -> bool:
        """Whether the leaves are padded to a few lengths."""
        return self.op.batching == "elementwise" and not self.batched

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each leaf, ``None`` where it varies."""
        inputs = {slot.name: _rank(slot.shape) for slot in self.op.inputs}
        outputs = {slot.name: _rank(slot.shape) for slot in self.op.outputs}
        found = walk(self.word, inputs, outputs, self.op.attrs.model_fields)
        ranks = found.leaves | dict.fromkeys(self.op.attrs.number_names(), 0)
        for name in found.directions[-1].values() if self.batched else ():
            ranks[name] = None if (rank := ranks[name]) is None else rank + 1
        return tuple(ranks[name] for name in self.leaf_names)

    @cached_property
    def layouts(self) -> tuple[Layout[Reference], Layout[Reference]]:
        """The layout of the word that derives the op from the registered one, and that of the program's own word.

        Each leaf and result has the reference to the leaf or output whose shape it has.
        """
        base, word = origin(self.op)
        inputs = {slot.name: Reference(slot.name, is_leaf=True) for slot in base.inputs}
        outputs = {slot.name: Reference(slot.name, is_leaf=False) for slot in base.outputs}
        before = walk(word, inputs, outputs, self.op.attrs.model_fields)
        named = {before.names[-1][name]: reference for name, reference in before.levels[-1].items()}
        return before, walk(self.word, before.leaves, named, self.op.attrs.model_fields)

    @cached_property
    def sites(self) -> Mapping[Key, Site]:
        """What each result is, and each shape that the program returns for checks."""
        (base, derivation), (before, own) = origin(self.op), self.layouts
        word, levels = (*derivation, *self.word), (*before.levels[:-1], *own.levels)
        inputs, sites = {slot.name for slot in base.inputs}, dict[Key, Site]()
        totals = accumulate((step.orders for step in word), initial=0)
        for number, (level, orders) in enumerate(zip(levels, totals, strict=True)):
            for name, reference in level.items():
                is_rule = orders == 1 or name in inputs
                function = "the gradient function" if is_rule else "the gradient of the gradient function"
                site = Site(reference, function if number else "forward", min(orders, 2))
                sites[f"{number} shape", name] = site
                if number >= len(derivation):
                    sites[number - len(derivation), name] = site
            step = word[number] if number < len(word) else None
            for name in step.wrt if step is not None and step.rule == "jvp" else ():
                sites[f"{number} inner shape", name] = Site(
                    Reference(name, True), "the gradient function", 1 + (orders > 0)
                )
        return sites

    @cached_property
    def leaf_names(self) -> tuple[str, ...]:
        """The names of the leaves in order; the number attributes have theirs."""
        directions = (name for each in self.layouts[1].directions for name in each.values())
        return (*(slot.name for slot in self.op.inputs), *self.op.attrs.number_names(), *directions)

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the tensors by level and name; those whose level ends in ``shape`` are only for checks.

        Raises ``OpFault`` if the op returns an invalid output or gradient.
        """
        (base, derivation), (before, own) = origin(self.op), self.layouts
        xs = dict(zip(self.leaf_names, leaves, strict=True))
        numbers = {name: xs.pop(name) for name in self.op.attrs.number_names()}
        sources = {name for step in self.word for name in step.wrt} | {slot.name for slot in self.op.inputs}
        calculus.watch(x for name, x in xs.items() if name in sources and x.dtype.is_floating)
        live = {slot.name for slot in base.outputs if base.is_differentiable(slot, self.dtype)}
        trace = _Trace(base, calculus, xs, live)
        trace.level = dict(self._forward(base, [xs[slot.name] for slot in base.inputs], numbers))
        for step, given in zip(derivation, before.directions, strict=True):
            trace.note_shapes()
            trace.take(step, given)
        trace.level = {before.names[-1][name]: value for name, value in trace.level.items()}
        results: dict[Key, Tensor | None] = {}
        for number, (step, given) in enumerate(zip(self.word, own.directions, strict=True)):
            if number in self.kept:
                results |= {(number, name): value for name, value in trace.level.items()}
            else:
                trace.note_shapes()
            trace.take(step, given, batched=self.batched and number == len(self.word) - 1)
        return {**trace.shapes, **results, **{(len(self.word), name): value for name, value in trace.level.items()}}

    def _forward(self, op: Op, xs: Sequence[Tensor], numbers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        ys = many(op.function(*xs, **dict(self.static), **numbers))
        wanted = [(slot, op.dtype_of(slot, self.dtype)) for slot in op.outputs]
        if len(ys) != len(wanted):
            names = ", ".join(slot.name for slot, _ in wanted)
            expected, where = f"one value for each of {names}", located(op.function)
            raise OpFault("forward", "its outputs", expected=expected, got=str(len(ys)), where=where)
        for (slot, dtype), y in zip(wanted, ys, strict=True):
            if not isinstance(y, tf.Tensor) or y.dtype.name != dtype:
                got = y.dtype.name if isinstance(y, tf.Tensor) else "None" if y is None else type(y).__name__
                where = located(op.function)
                raise OpFault("forward", slot.name, expected=f"a {dtype} tensor", got=got, where=where)
        return {slot.name: y for (slot, _), y in zip(wanted, ys, strict=True)}


@dataclass
class _Trace:
    """A program under construction: the registered op, the leaves by name, and the results of the last step.

    ``live`` are the differentiable outputs of the op.
    """

    op: Op
    calculus: Calculus
    leaves: Mapping[str, Tensor]
    live: set[str]
    level: Level = field(default_factory=dict[str, "Tensor | None"])
    steps: int = 0
    orders: int = 0
    shapes: dict[Key, Tensor] = field(default_factory=dict[Key, Tensor])

    def note_shapes(self) -> None:
        """Return the shapes of this level from the program, so that they are checked."""
        self._note(f"{self.steps} shape", self.level)

    def take(self, step: Step, given: Mapping[str, str], *, batched: bool = False) -> None:
        """Replace the level by the results of a step, ``None`` for those that no path reaches.

        ``given`` has the name of the leaf for each direction; if ``batched``, they have a leading axis.
        """
        directions = {name: self.leaves[leaf] for name, leaf in given.items()}
        match step.rule:
            case "vjp":
                self.level = self._vjp(step, None if step.ones else directions, batched=batched)
            case "jvp":
                self.level = self._jvp(step, directions, batched=batched)
            case "diagonal":
                self.level = self._diagonal(step)
            case "half_square":
                self.level = {name: directions[name] * y * y / 2 for name, y in self._present(step).items()}
        self.steps += 1
        self.orders += step.orders

    def _vjp(self, step: Step, dys: Mapping[str, Tensor] | None, *, batched: bool) -> Level:
        ys, xs = self._present(step), {name: self.leaves[name] for name in step.wrt}
        if not ys or not xs:
            return dict.fromkeys(xs)
        pullback = self.calculus.pullback(list(ys.values()), list(xs.values()))
        rows = None if dys is None else [dys[name] for name in ys]
        dxs = self.calculus.each(pullback, rows) if batched and rows is not None else pullback(rows)
        return self._checked(xs, dxs, is_first=not self.orders, of=step.of)

    def _jvp(self, step: Step, tangents: Mapping[str, Tensor], *, batched: bool) -> Level:
        us = {name: tf.ones_like(y) for name, y in self._present(step).items()}
        self.calculus.watch(us.values())
        dxs = self._vjp(vjp(step.wrt, step.of), us, batched=False)
        self._note(f"{self.steps} inner shape", dxs)
        present = {name: dx for name, dx in dxs.items() if dx is not None}
        if not present:
            return dict.fromkeys(step.of)
        pullback = self.calculus.pullback(list(present.values()), list(us.values()))
        rows = [tangents[name] for name in present]
        found = self.calculus.each(pullback, rows) if batched else pullback(rows)
        return {**dict.fromkeys(step.of), **self._checked(us, found, is_first=False)}

    def _diagonal(self, step: Step) -> Level:
        found: Level = {}
        for name in step.wrt:
            dx, x = self.level[name], {name: self.leaves[name]}
            dxs = self.calculus.pullback([dx], list(x.values()))(None) if dx is not None else [None]
            found |= self._checked(x, dxs, is_first=False)
        return found

    def _present(self, step: Step) -> dict[str, Tensor]:
        """Return the results that a step differentiates, without missing ones."""
        return {name: y for name in step.of if (y := self.level[name]) is not None}

    def _note(self, key: str, values: Level) -> None:
        self.shapes |= {(key, name): tf.shape(value) for name, value in values.items() if value is not None}

    def _checked(
        self, xs: Mapping[str, Tensor], dxs: Sequence[Any], *, is_first: bool, of: Sequence[str] = ()
    ) -> Level:
        """Return the gradients by name; raise ``OpFault`` for a value that is not a gradient.

        A first gradient may be missing only if some outputs ``of`` the op have no cotangent, or if the op declares it.
        """
        may_miss = not is_first or set(of) != self.live
        for (name, x), dx in zip(xs.items(), dxs, strict=True):
            expected, got = f"a {x.dtype.name} tensor with the shape of {name}", None
            if dx is None:
                got = None if may_miss or name in self.op.null_gradients else _missing(self.op, name)
            elif not isinstance(dx, tf.Tensor):
                got = f"{dx!r} ({type(dx).__name__})"
            elif dx.dtype != x.dtype:
                got = dx.dtype.name
            if got is not None:
                where = gradient_function(self.op, 1 if is_first else 2)
                raise OpFault("the gradient function", name, expected=expected, got=got, where=where)
        return dict(zip(xs, dxs, strict=True))


def _missing(op: Op, name: str) -> str:
    """Return how a gradient is missing: ``None`` as a value of vjp, if that is known."""
    names, rules = [slot.name for slot in op.inputs], rules_of(op.function)
    if rules is None or names.index(name) not in rules.returned_none:
        return "None, or no path at all"
    return f"None (value {names.index(name) + 1} of {len(names)})"


def gradient_function(op: Op, order: int) -> str:
    """Return the author's gradient function of an order with its file and line, or else the op's own function."""
    rules = rules_of(op.function)
    if rules is None:
        return located(op.function)
    return located(rules.vjp if order == 1 else rules.vjp_vjp)


def _rank(shape: Sequence[str | int]) -> int | None:
    return None if "..." in shape else len(shape)
