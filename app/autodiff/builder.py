"""Transforms applied to the tensors of a program, one after the other, with checks of each gradient.

Every transform is made of pullbacks, because only reverse over reverse honours a custom gradient at each order.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import tensorflow as tf

from app.autodiff.transforms import Transform
from app.runtime import cancellation, trace_limits
from app.runtime.calculus import Calculus
from app.runtime.modes import Key
from ops import Op, OpFault, Tensor, located, rules_of

Level: TypeAlias = dict[str, Tensor | None]
"""The results of a transform by name, ``None`` for those that no path reaches."""


@dataclass
class Builder:
    """A program under construction.

    It has the registered op with its attributes, the leaves by name, and in ``level`` the results of the last
    transform. ``differentiable`` are outputs of the op. The program has ``orders`` nested pullbacks. ``shapes``
    are results that are only for checks.
    """

    op: Op
    attrs: Mapping[str, Any]
    calculus: Calculus
    leaves: Mapping[str, Tensor]
    differentiable: set[str]
    level: Level
    orders: int
    applied: int = 0
    pulled: int = 0
    shapes: dict[Key, Tensor] = field(default_factory=dict[Key, Tensor])

    def return_shapes(self, values: Level | None = None, kind: str = "shape") -> None:
        """Return the shapes of values, by default this level, from the program, so that they are checked."""
        present = {name: y for name, y in (self.level if values is None else values).items() if y is not None}
        self.shapes |= {(f"{self.applied} {kind}", name): tf.shape(y) for name, y in present.items()}

    def apply(
        self, transform: Transform, seeds: Mapping[str, str], *, batched: bool = False, pairs: Collection[str] = ()
    ) -> None:
        """Replace the level by the results of a transform, ``None`` for those that no path reaches.

        ``seeds`` has the name of the leaf of each seed; if ``batched``, they have a leading axis. ``pairs`` are results
        of this level for complex numbers: a cotangent of one is 1 + 0i.
        """
        cancellation.check()
        directions = {name: self.leaves[leaf] for name, leaf in seeds.items()}
        ys = {name: y for name in transform.of if (y := self.level[name]) is not None}
        xs = {name: self.leaves[name] for name in transform.wrt}
        match transform.rule:
            case "vjp":
                if transform.ones and not pairs:
                    self.level = self._vjp(ys, xs)
                else:
                    directions = (
                        {name: _ones(y, name in pairs) for name, y in ys.items()} if transform.ones else directions
                    )
                    self.level = self._vjp(ys, xs, directions, batched=batched)
            case "jvp":
                self.level = dict.fromkeys(transform.of) | self._jvp(ys, xs, directions, batched=batched)
            case "diagonal":
                self.level = dict.fromkeys(xs)
                for name, y in ys.items():
                    self.level |= self._vjp({name: y}, {name: xs[name]})
            case "half_square":
                self.level = {name: directions[name] * y * y / 2 for name, y in ys.items()}
        self.applied += 1

    def _jvp(
        self, ys: Mapping[str, Tensor], xs: Mapping[str, Tensor], txs: Mapping[str, Tensor], *, batched: bool
    ) -> Level:
        """Return the tangents of ``ys``: the vjp of the vjp with respect to its cotangent."""
        dys = {name: tf.ones_like(y) for name, y in ys.items()}
        self.calculus.watch(dys.values())
        dxs = self._vjp(ys, xs, dys)
        self.return_shapes(dxs, "inner shape")
        return self._vjp({name: dx for name, dx in dxs.items() if dx is not None}, dys, txs, batched=batched)

    def _vjp(
        self,
        ys: Mapping[str, Tensor],
        xs: Mapping[str, Tensor],
        dys: Mapping[str, Tensor] | None = None,
        *,
        batched: bool = False,
    ) -> Level:
        """Return the cotangents of ``xs``, for ones or ``dys``; raise ``OpFault`` for a value that is not a gradient.

        A first gradient may be missing only if some outputs of the op have no cotangent, or if the op declares it.
        """
        if not ys or not xs:
            return dict.fromkeys(xs)
        may_miss = self.pulled or set(ys) != self.differentiable
        self.pulled += 1
        before = trace_limits.nodes()
        pullback = self.calculus.pullback(list(ys.values()), list(xs.values()))
        rows = None if dys is None else [dys[name] for name in ys]
        dxs = self.calculus.each(pullback, rows) if batched and rows is not None else pullback(rows)
        if self.pulled > 1:
            trace_limits.look_ahead(before, self.orders - self.pulled)
        for (name, x), dx in zip(xs.items(), cast(Sequence[Any], dxs), strict=True):
            got = None
            if dx is None:
                got = None if may_miss or name in self.op.null_gradients else self._missing(name)
            elif not isinstance(dx, tf.Tensor):
                got = f"{dx!r} ({type(dx).__name__})"
            elif dx.dtype != x.dtype:
                got = dx.dtype.name
            if got is not None:
                expected = f"a {x.dtype.name} tensor with the shape of {name}"
                where = gradient_function(self.op, self.pulled)
                raise OpFault("the gradient function", name, expected=expected, got=got, where=where)
        return dict(zip(xs, dxs, strict=True))

    def _missing(self, name: str) -> str:
        """Return how a gradient is missing: ``None`` as a value of vjp or of a node, if that is known."""
        if node := self.op.node_without_gradient(name, self.leaves, self.attrs):
            return f"None from {node}"
        names, rules = [slot.name for slot in self.op.general.every_input], rules_of(self.op.function)
        if rules is None or names.index(name) not in rules.returned_none:
            return "None, or no path at all"
        return f"None (value {names.index(name) + 1} of {len(names)})"


def _ones(y: Tensor, is_pairs: bool) -> Tensor:
    """Return cotangents of one, of complex numbers as pairs."""
    ones = tf.ones_like(y)
    return tf.stack([ones[..., 0], tf.zeros_like(ones[..., 1])], axis=-1) if is_pairs else ones


def gradient_function(op: Op, order: int) -> str:
    """Return the author's gradient function of an order with its file and line, or else the op's own function."""
    rules = rules_of(op.function)
    if rules is None:
        return located(op.function)
    return located(rules.vjp if order == 1 else rules.vjp_vjp)
