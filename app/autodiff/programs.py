"""The derivatives of an op as programs for ``app.runtime.modes``, which runs them in any mode.

Every derivative is a chain of pullbacks, because only reverse over reverse honours a custom gradient at both orders:
a jvp is the vjp of the vjp with respect to its cotangent, an hvp is the vjp of the vjp, and the jvp of a vjp is the vjp
of the hvp with respect to its vector.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from app.runtime.calculus import Calculus
from app.runtime.modes import Key, Results
from ops import Op, OpFault, Tensor, located, many, rules_of

Kind = Literal["forward", "gradients", "vjp", "jvp", "hvp", "vjp_jvp", "diagonal", "second", "composite"]
_Gradients: TypeAlias = Mapping[str, Tensor | None]


@dataclass(frozen=True)
class Program:
    """One derivative of one op, for one dtype and one choice of static attributes.

    Leaves are the inputs, the number attributes, the cotangents named in ``cotangents`` (``None``: ones for every
    differentiable output) and the directions named in ``along`` (tangents or vectors, one for each named input).
    """

    op: Op
    dtype: str
    static: tuple[tuple[str, Any], ...]
    kind: Kind
    order: int = 1
    wrt: tuple[str, ...] = ()
    cotangents: tuple[str, ...] | None = None
    along: tuple[str, ...] = ()
    batched: bool = False
    outputs: bool = False

    def __hash__(self) -> int:
        """Return the hash of the fields, computed once."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.op, self.dtype, self.static, self.kind, self.wrt, self.cotangents, self.along))

    @property
    def owner(self) -> str:
        """The op's name."""
        return self.op.name

    @property
    def orders(self) -> int:
        """The number of nested pullbacks."""
        return {"forward": 0, "gradients": self.order, "vjp": 1, "vjp_jvp": 3}.get(self.kind, 2)

    @property
    def runs_eagerly(self) -> bool:
        """Whether eager mode and graph mode give the same results."""
        # A tape silently ignores a bare override map, so eager results may differ.
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
        """Return the tensors by ``(what, name)``; those whose ``what`` ends in ``shape`` are only for checks.

        Raises ``OpFault`` if the op returns an invalid output or gradient.
        """
        rest = iter(leaves)
        xs = {slot.name: next(rest) for slot in self.op.inputs}
        numbers = {name: next(rest) for name in self.op.attrs.number_names()}
        dys = None if self.cotangents is None else {name: next(rest) for name in self.cotangents}
        directions = {name: next(rest) for name in self.along}
        calculus.watch(x for x in xs.values() if x.dtype.is_floating)
        ys = self._forward(xs, numbers)
        seeded = {name: y for name, y in ys.items() if name in self._seeds}
        made = _RULES[self.kind](_Trace(self, calculus, xs, seeded, dys, directions))
        if self.kind == "forward" or self.outputs:
            return {**{("outputs", name): y for name, y in ys.items()}, **made}
        return {**{("output shape", name): tf.shape(y) for name, y in ys.items()}, **made}

    def _forward(self, xs: Mapping[str, Tensor], numbers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        ys = many(self.op.function(*xs.values(), **dict(self.static), **numbers))
        wanted = [(slot, self.op.dtype_of(slot, self.dtype)) for slot in self.op.outputs]
        if len(ys) != len(wanted):
            names = ", ".join(slot.name for slot, _ in wanted)
            expected, where = f"one value for each of {names}", located(self.op.function)
            raise OpFault("forward", "its outputs", expected=expected, got=str(len(ys)), where=where)
        for (slot, dtype), y in zip(wanted, ys, strict=True):
            if not isinstance(y, tf.Tensor) or y.dtype.name != dtype:
                got = y.dtype.name if isinstance(y, tf.Tensor) else "None" if y is None else type(y).__name__
                where = located(self.op.function)
                raise OpFault("forward", slot.name, expected=f"a {dtype} tensor", got=got, where=where)
        return {slot.name: y for (slot, _), y in zip(wanted, ys, strict=True)}

    @property
    def _differentiable(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.op.outputs if self.op.is_differentiable(slot, self.dtype))

    @property
    def _seeds(self) -> tuple[str, ...]:
        """The outputs that have a cotangent."""
        return self._differentiable if self.cotangents is None else self.cotangents

    def checked(self, xs: Mapping[str, Tensor], dxs: Sequence[Any], *, first: bool) -> dict[str, Tensor | None]:
        """Return the gradients by name; raise ``OpFault`` for a value that is not a gradient.

        A ``first`` gradient may be missing only if some outputs have no cotangent, or if the op declares it.
        """
        may_miss = not first or set(self._seeds) != set(self._differentiable)
        for (name, x), dx in zip(xs.items(), dxs, strict=True):
            expected, got = f"a {x.dtype.name} tensor with the shape of {name}", None
            if dx is None:
                got = None if may_miss or name in self.op.null_gradients else self._missing(name)
            elif not isinstance(dx, tf.Tensor):
                got = f"{dx!r} ({type(dx).__name__})"
            elif dx.dtype != x.dtype:
                got = dx.dtype.name
            if got is not None:
                where = gradient_function(self.op, 1 if first else 2)
                raise OpFault("the gradient function", name, expected=expected, got=got, where=where)
        return dict(zip(xs, dxs, strict=True))

    def _missing(self, name: str) -> str:
        """Return how a gradient is missing: ``None`` as a value of vjp, if that is known."""
        names, rules = [slot.name for slot in self.op.inputs], rules_of(self.op.function)
        if rules is None or names.index(name) not in rules.returned_none:
            return "None, or no path at all"
        return f"None (value {names.index(name) + 1} of {len(names)})"


@dataclass(frozen=True)
class _Trace:
    """A program under construction: its inputs, the outputs with a cotangent, the cotangents and the directions."""

    program: Program
    calculus: Calculus
    xs: Mapping[str, Tensor]
    ys: Mapping[str, Tensor]
    dys: Mapping[str, Tensor] | None
    directions: Mapping[str, Tensor]

    def vjp(self, wrt: Sequence[str], dys: Mapping[str, Tensor] | None, *, batched: bool = False) -> _Gradients:
        """Return the first gradients, checked; if ``dys`` is ``None``, the cotangents are ones."""
        sources = {name: self.xs[name] for name in wrt}
        if not self.ys or not sources:
            return dict.fromkeys(sources)
        pullback = self.calculus.pullback(list(self.ys.values()), list(sources.values()))
        rows = None if dys is None else [dys[name] for name in self.ys]
        dxs = self.calculus.each(pullback, rows) if batched and rows is not None else pullback(rows)
        return self.program.checked(sources, dxs, first=True)

    def pulled_back(self, gradients: _Gradients, leaves: Mapping[str, Tensor]) -> _Gradients:
        """Pull the directions, one for each gradient, back to the leaves."""
        present = {name: dx for name, dx in gradients.items() if dx is not None}
        if not present or not leaves:
            return dict.fromkeys(leaves)
        pullback = self.calculus.pullback(list(present.values()), list(leaves.values()))
        rows = [self.directions[name] for name in present]
        found = self.calculus.each(pullback, rows) if self.program.batched else pullback(rows)
        return self.program.checked(leaves, found, first=False)


def _forward(trace: _Trace) -> Results:
    del trace
    return {}


def _vjp(trace: _Trace) -> Results:
    found = trace.vjp(trace.program.wrt, trace.dys, batched=trace.program.batched)
    return {("gradients", name): dx for name, dx in found.items()}


def _gradients(trace: _Trace) -> Results:
    sources = {name: trace.xs[name] for name in trace.program.wrt}
    level = trace.vjp(trace.program.wrt, trace.dys)
    found: dict[Key, Tensor | None] = {(0, name): dx for name, dx in level.items()}
    for order in range(1, trace.program.order):
        present = [dx for dx in level.values() if dx is not None]
        dxs = trace.calculus.pullback(present, list(sources.values()))(None) if present else [None] * len(sources)
        level = trace.program.checked(sources, dxs, first=False)
        found |= {(order, name): dx for name, dx in level.items()}
    return found


def _jvp(trace: _Trace) -> Results:
    us = {name: tf.ones_like(y) for name, y in trace.ys.items()}
    trace.calculus.watch(us.values())
    gradients = trace.vjp(trace.program.along, us)
    found = trace.pulled_back(gradients, us)
    return {**{("tangents", name): ty for name, ty in found.items()}, **_shapes(gradients)}


def _hvp(trace: _Trace) -> Results:
    gradients = trace.vjp(trace.program.along, trace.dys)
    found = trace.pulled_back(gradients, {name: trace.xs[name] for name in trace.program.wrt})
    return {**{("products", name): product for name, product in found.items()}, **_shapes(gradients)}


def _vjp_jvp(trace: _Trace) -> Results:
    """Return Hv, the tangents of the gradients along the directions: the hvp is Hᵀu, which is linear in u."""
    gradients = trace.vjp(trace.program.wrt, trace.dys)
    present = {name: dx for name, dx in gradients.items() if dx is not None}
    us = {name: tf.ones_like(dx) for name, dx in present.items()}
    trace.calculus.watch(us.values())
    sources = {name: trace.xs[name] for name in trace.program.along}
    found = trace.calculus.pullback(list(present.values()), list(sources.values()))(list(us.values())) if us else ()
    products = trace.program.checked(sources, found, first=False) if us else {}
    tangents = {**dict.fromkeys(gradients), **trace.pulled_back(products, us)}
    return {**{("products", name): product for name, product in tangents.items()}, **_shapes(gradients)}


def _diagonal(trace: _Trace) -> Results:
    """Return the derivative of each gradient in its own input: for elementwise ops, the Hessian's diagonal."""
    gradients = trace.vjp(trace.program.wrt, trace.dys)
    found: dict[Key, Tensor | None] = {}
    for name, dx in gradients.items():
        sources = {name: trace.xs[name]}
        dxs = trace.calculus.pullback([dx], list(sources.values()))(None) if dx is not None else [None]
        found["products", name] = trace.program.checked(sources, dxs, first=False)[name]
    return {**found, **_shapes(gradients)}


def _second(trace: _Trace) -> Results:
    """Return dx, and the cotangents of x and dy for the directions at dx; x and dy are independent leaves."""
    dys = trace.dys or {}
    trace.calculus.watch(dys.values())
    gradients = trace.vjp(trace.program.along, dys)
    # The space avoids a clash with the name of an input.
    slots = {f"cotangent of {name}": dy for name, dy in dys.items()}
    found = trace.pulled_back(gradients, {**{name: trace.xs[name] for name in trace.program.along}, **slots})
    return {
        **{("gradients", name): dx for name, dx in gradients.items()},
        **{("products", name): found[name] for name in gradients},
        **{("slots", name): found[slot] for name, slot in zip(dys, slots, strict=True)},
    }


def _composite(trace: _Trace) -> Results:
    """Return the gradient of Σ c y²/2, where c are the cotangents, and its Hessian product: dy depends on x here."""
    dys = {name: c * trace.ys[name] for name, c in (trace.dys or {}).items()}
    gradients = trace.vjp(trace.program.along, dys)
    found = trace.pulled_back(gradients, {name: trace.xs[name] for name in trace.program.along})
    return {
        **{("gradients", name): dx for name, dx in gradients.items()},
        **{("products", name): product for name, product in found.items()},
    }


_RULES: Mapping[Kind, Callable[[_Trace], Results]] = {
    "forward": _forward,
    "gradients": _gradients,
    "vjp": _vjp,
    "jvp": _jvp,
    "hvp": _hvp,
    "vjp_jvp": _vjp_jvp,
    "diagonal": _diagonal,
    "second": _second,
    "composite": _composite,
}


def _shapes(gradients: _Gradients) -> Results:
    return {("gradient shape", name): tf.shape(dx) for name, dx in gradients.items() if dx is not None}


def gradient_function(op: Op, order: int) -> str:
    """Return the author's gradient function of an order with its file and line, or else the op's own function."""
    rules = rules_of(op.function)
    if rules is None:
        return located(op.function)
    return located(rules.vjp if order == 1 else rules.vjp_vjp)


def _rank(shape: Sequence[str | int]) -> int | None:
    return None if "..." in shape else len(shape)


def _plus(rank: int | None, more: int) -> int | None:
    return None if rank is None else rank + more
