"""The derivatives of an op as programs of ``app.modes``: what is computed, whatever the mode.

Every derivative is a chain of pullbacks, because reverse over reverse is the only form that honours a custom gradient
at both orders: a jvp is the vjp of the vjp with respect to its cotangent, an hvp the vjp of the vjp.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from app.calculus import Calculus
from app.modes import Key, Results
from ops import GradientFault, Op, Tensor, many

Kind = Literal["forward", "gradients", "vjp", "jvp", "hvp"]


@dataclass(frozen=True)
class Program:
    """One derivative of one op, for one dtype and one choice of static attributes.

    Leaves are the inputs, the number attributes, the cotangents named in ``cotangents`` (``None``: ones for every
    differentiable output) and the directions named in ``along`` (tangents or vectors, one for each named input).
    """

    op: Op
    dtype: str
    static: tuple[tuple[str, Any], ...]
    kind: Literal["forward", "gradients", "vjp", "jvp", "hvp"]
    order: int = 1
    wrt: tuple[str, ...] = ()
    cotangents: tuple[str, ...] | None = None
    along: tuple[str, ...] = ()
    batched: bool = False
    outputs: bool = False

    @property
    def orders(self) -> int:
        """How many pullbacks are nested in it."""
        return {"forward": 0, "gradients": self.order, "vjp": 1, "jvp": 2, "hvp": 2}[self.kind]

    @property
    def runs_eagerly(self) -> bool:
        """Tell whether the eager answer is the graph's answer."""
        # A bare override map is silently ignored by a tape, so the eager answer may be another one.
        return self.op.mechanism != "gradient_override_map"

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each leaf, ``None`` where it varies."""
        inputs = {slot.name: _rank(slot.shape) for slot in self.op.inputs}
        outputs = {slot.name: _rank(slot.shape) for slot in self.op.outputs}
        more = int(self.batched)
        return (
            *inputs.values(),
            *(0 for _ in self.op.attrs.number_names()),
            *(_plus(outputs[name], more * (self.kind == "vjp")) for name in self.cotangents or ()),
            *(_plus(inputs[name], more) for name in self.along),
        )

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Compute ``(what, name)`` to tensor; a ``what`` that ends in ``shape`` is there to be checked.

        Raises ``GradientFault`` where the op returns what is no output or no gradient.
        """
        rest = iter(leaves)
        xs = {slot.name: next(rest) for slot in self.op.inputs}
        numbers = {name: next(rest) for name in self.op.attrs.number_names()}
        dys = None if self.cotangents is None else {name: next(rest) for name in self.cotangents}
        directions = {name: next(rest) for name in self.along}
        calculus.watch(x for x in xs.values() if x.dtype.is_floating)
        ys = self._forward(xs, numbers)
        found: dict[Key, Tensor | None] = {}
        if self.kind == "forward" or self.outputs:
            found |= {("outputs", name): y for name, y in ys.items()}
        else:
            found |= {("output shape", name): tf.shape(y) for name, y in ys.items()}
        if self.kind != "forward":
            seeded = {name: y for name, y in ys.items() if self._seeds(name)}
            found |= getattr(self, f"_{self.kind}")(calculus, xs, seeded, dys, directions)
        return found

    def _forward(self, xs: Mapping[str, Tensor], numbers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        ys = many(self.op.function(*xs.values(), **dict(self.static), **numbers))
        wanted = [(slot, self.op.dtype_of(slot, self.dtype)) for slot in self.op.outputs]
        if len(ys) != len(wanted):
            expected = f"{len(wanted)} ({', '.join(slot.name for slot, _ in wanted)})"
            raise GradientFault("forward", "the outputs", expected=expected, got=str(len(ys)))
        for (slot, dtype), y in zip(wanted, ys, strict=True):
            if not isinstance(y, tf.Tensor) or y.dtype.name != dtype:
                got = y.dtype.name if isinstance(y, tf.Tensor) else type(y).__name__
                raise GradientFault("forward", slot.name, expected=f"a {dtype} tensor", got=got)
        return {slot.name: y for (slot, _), y in zip(wanted, ys, strict=True)}

    def _seeds(self, output: str) -> bool:
        """Tell whether a cotangent arrives at an output: without any named, at every differentiable one."""
        if self.cotangents is not None:
            return output in self.cotangents
        return any(s.name == output and self.op.is_differentiable(s, self.dtype) for s in self.op.outputs)

    def _first(
        self,
        calculus: Calculus,
        xs: Mapping[str, Tensor],
        ys: Mapping[str, Tensor],
        dys: Mapping[str, Tensor] | None,
        wrt: Sequence[str],
    ) -> dict[str, Tensor | None]:
        """Return the vjp, every gradient checked; ``dys`` of ``None`` are ones."""
        if not ys or not wrt:
            return dict.fromkeys(wrt)
        pullback = calculus.pullback(list(ys.values()), [xs[name] for name in wrt])
        dxs = pullback(None if dys is None else [dys[name] for name in ys])
        return self._checked({name: xs[name] for name in wrt}, dxs, complete=self.cotangents is None)

    def _checked(self, xs: Mapping[str, Tensor], dxs: Sequence[Any], *, complete: bool) -> dict[str, Tensor | None]:
        """Refuse what is no gradient; ``complete`` says that every output was seeded, so that none may be missing."""
        checked: dict[str, Tensor | None] = {}
        for (name, x), dx in zip(xs.items(), dxs, strict=True):
            expected = f"a {x.dtype.name} tensor of the shape of {name}"
            if dx is None and complete and name not in self.op.null_gradients:
                raise GradientFault("the gradient function", name, expected=expected, got="None, or no path at all")
            if dx is not None and not isinstance(dx, tf.Tensor):
                got = f"{dx!r} ({type(dx).__name__})"
                raise GradientFault("the gradient function", name, expected=expected, got=got)
            if dx is not None and dx.dtype != x.dtype:
                raise GradientFault("the gradient function", name, expected=expected, got=dx.dtype.name)
            checked[name] = dx
        return checked

    def _vjp(
        self,
        calculus: Calculus,
        xs: Mapping[str, Tensor],
        ys: Mapping[str, Tensor],
        dys: Mapping[str, Tensor] | None,
        directions: Mapping[str, Tensor],
    ) -> Results:
        del directions
        if self.batched and ys and dys is not None:
            pullback = calculus.pullback(list(ys.values()), [xs[name] for name in self.wrt])
            found = calculus.each(pullback, [dys[name] for name in ys])
            return {("gradients", name): dx for name, dx in zip(self.wrt, found, strict=True)}
        return {("gradients", name): dx for name, dx in self._first(calculus, xs, ys, dys, self.wrt).items()}

    def _gradients(
        self,
        calculus: Calculus,
        xs: Mapping[str, Tensor],
        ys: Mapping[str, Tensor],
        dys: Mapping[str, Tensor] | None,
        directions: Mapping[str, Tensor],
    ) -> Results:
        del directions
        found: dict[Key, Tensor | None] = {}
        level = self._first(calculus, xs, ys, dys, self.wrt)
        for order in range(self.order):
            found |= {(order, name): dx for name, dx in level.items()}
            present = [dx for dx in level.values() if dx is not None]
            if order + 1 < self.order:
                sources = [xs[name] for name in self.wrt]
                dxs = calculus.pullback(present, sources)(None) if present else [None] * len(sources)
                level = self._checked({name: xs[name] for name in self.wrt}, dxs, complete=False)
        return found

    def _jvp(
        self,
        calculus: Calculus,
        xs: Mapping[str, Tensor],
        ys: Mapping[str, Tensor],
        dys: Mapping[str, Tensor] | None,
        directions: Mapping[str, Tensor],
    ) -> Results:
        del dys
        us = {name: tf.ones_like(y) for name, y in ys.items()}
        calculus.watch(us.values())
        gradients = self._first(calculus, xs, ys, us, self.along)
        found = self._transpose(calculus, gradients, us, directions)
        return {
            **{("tangents", name): ty for name, ty in found.items()},
            **{("gradient shape", name): tf.shape(dx) for name, dx in gradients.items() if dx is not None},
        }

    def _hvp(
        self,
        calculus: Calculus,
        xs: Mapping[str, Tensor],
        ys: Mapping[str, Tensor],
        dys: Mapping[str, Tensor] | None,
        directions: Mapping[str, Tensor],
    ) -> Results:
        gradients = self._first(calculus, xs, ys, dys, self.along)
        found = self._transpose(calculus, gradients, {name: xs[name] for name in self.wrt}, directions)
        return {
            **{("products", name): product for name, product in found.items()},
            **{("gradient shape", name): tf.shape(dx) for name, dx in gradients.items() if dx is not None},
        }

    def _transpose(
        self,
        calculus: Calculus,
        gradients: Mapping[str, Tensor | None],
        leaves: Mapping[str, Tensor],
        directions: Mapping[str, Tensor],
    ) -> dict[str, Tensor | None]:
        """Pull the directions, which belong to the gradients, back to the leaves."""
        present = {name: dx for name, dx in gradients.items() if dx is not None}
        if not present or not leaves:
            return dict.fromkeys(leaves)
        pullback = calculus.pullback(list(present.values()), list(leaves.values()))
        rows = [directions[name] for name in present]
        found = calculus.each(pullback, rows) if self.batched else pullback(rows)
        return self._checked(leaves, found, complete=False)


def _rank(shape: Sequence[str | int]) -> int | None:
    return None if "..." in shape else len(shape)


def _plus(rank: int | None, more: int) -> int | None:
    return None if rank is None else rank + more
