"""Linearizations: an op at a point, with what its derivatives there need of the forward pass.

The forward pass is computed once; each product costs a backward pass. The same kernels compute it as without a
linearization in mode graph (``app.runtime.residuals``). TensorFlow optimises both parts of the graph apart, so in rare
cases the last bits differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from app.autodiff import derivatives
from app.autodiff.absent import Absent
from app.autodiff.binding import need_order
from app.autodiff.derivatives import Derivatives
from app.autodiff.directions import per_call
from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.packing import Whole
from app.autodiff.point import Arrays, Point
from app.autodiff.transforms import Transform
from app.errors import wrong
from app.runtime.cancellation import Checkpoint
from app.runtime.cut_traces import JOINED
from app.runtime.residuals import Residuals, Use, using
from app.tensors.dtypes import DTYPES
from ops import Array

Reserve: TypeAlias = Callable[[int], bool]
"""Takes bytes from a budget, negative ones back; returns whether it has room."""

# A forward pass that takes less is not worth its place: a request alone takes as long.
CHEAP_S = 2e-3
# The first call of a program in a process takes longer than later ones. It is repeated to see, if it took less.
REPEATED_S = 0.5
NO_ROOM = "the service has no room for this forward pass (PULLBACK_LINEARIZATIONS_MB)"


@dataclass(frozen=True)
class Product:
    """A product of the derivative with a direction, and whether the forward pass was computed for it again."""

    result: Any
    is_recomputed: bool


@dataclass(frozen=True, eq=False)
class Linearization:
    """An op at a point, differentiated with respect to the inputs ``wrt``, with its outputs."""

    point: Point
    wrt: Sequence[str]
    outputs: Derivatives
    residuals: Residuals

    def vjp(self, cotangents: Arrays | None, *, batched: bool, checkpoint: Checkpoint) -> Product:
        """Return the cotangents of the inputs; if ``batched``, along a leading axis.

        Raises as ``derivatives.vjp`` does.
        """

        def product(cotangents: Arrays | None) -> Evaluation[Derivatives]:
            # Ones as leaves, because the residuals are those of a trace with leaves.
            cotangents = self._ones if cotangents is None else cotangents
            one = derivatives.vjp(self.point, self.wrt, cotangents, batched=False, outputs=True)
            return one.then(lambda result: result[1])

        return self._products(product, cotangents, "cotangents", batched=batched, checkpoint=checkpoint)

    def jvp(self, tangents: Arrays, *, batched: bool, checkpoint: Checkpoint) -> Product:
        """Return the tangents of the outputs; raises as ``derivatives.jvp`` does."""
        product = partial(derivatives.jvp, self.point, batched=False)
        return self._products(product, tangents, "tangents", batched=batched, checkpoint=checkpoint)

    def hvp(self, cotangents: Arrays | None, vectors: Arrays, *, batched: bool, checkpoint: Checkpoint) -> Product:
        """Return Hᵀv for each input; raises as ``derivatives.hvp`` does."""
        product = partial(derivatives.hvp, self.point, self.wrt, cotangents, batched=False)
        return self._products(product, vectors, "vectors", batched=batched, checkpoint=checkpoint)

    def _products(
        self,
        product: Callable[[Any], Evaluation[Derivatives]],
        directions: Arrays | None,
        field: str,
        *,
        batched: bool,
        checkpoint: Checkpoint,
    ) -> Product:
        """Return the product with each direction."""
        rows = [directions] if not batched else _rows(directions, field)
        with using(self.residuals) as use:
            found, start = list[Derivatives](), 0
            while start < len(rows):
                checkpoint()
                some = [product(row) for row in rows[start : start + self._per_call]]
                # Rows are padded, each evaluation by itself.
                some = some if isinstance(some[0].packed[0], Whole) else some[:1]
                found += [each.finish(results) for each, results in zip(some, compute(some), strict=True)]
                start += len(some)
        result = found[0] if not batched else {name: _stacked([each[name] for each in found]) for name in found[0]}
        return Product(result, use.computed > 0)

    @property
    def _ones(self) -> Arrays | None:
        """A cotangent of one for each number; ``None`` where an output is missing."""
        side = self.point.spec.outputs
        ys = {name: self.outputs[name] for name in side.differentiable}
        ones = {name: np.ones_like(y) for name, y in ys.items() if not isinstance(y, Absent)}
        for name in side.pairs & ones.keys():
            ones[name][..., 1] = 0
        return ones if ones and len(ones) == len(ys) else None

    @property
    def _per_call(self) -> int:
        return min(JOINED, per_call(self.point))


def linearize(point: Point, wrt: Sequence[str], reserve: Reserve) -> tuple[Linearization, str]:
    """Return the linearization of an op at a point, and why it is not worth keeping, "" if it is.

    ``reserve`` takes the bytes of what it keeps. Raises ``Unprocessable`` if the op rejects its inputs or declares no
    gradient, and ``OpFailed`` if it fails.
    """
    spec = point.spec
    need_order(point.op, spec.attrs, 1)
    if spec.mode != "graph":
        return _bare(point, wrt), f"mode {spec.mode} keeps nothing of a forward pass: send mode graph, or none"
    inputs, along = derivatives.differentiable_inputs(point, wrt), spec.outputs.differentiable
    if not inputs or not along:
        return _bare(point, wrt), "nothing is differentiable here"
    known = len(point.inputs) + len(spec.numbers)
    seeds = {name: np.zeros(point.output_shapes[name] or (), DTYPES[spec.outputs.dtypes[name]].numpy) for name in along}
    evaluation = Evaluation(
        point, (Transform("vjp", inputs, along),), partial(derivatives.outputs_of, spec), (seeds,), (0,)
    )
    residuals = Residuals(known, reserve)
    outputs, use = _first_part(evaluation, residuals)
    seconds = use.seconds
    if use.is_first and CHEAP_S <= seconds < REPEATED_S:
        seconds = _first_part(evaluation, Residuals(known, lambda size: False))[1].seconds
    reason = ""
    if seconds < CHEAP_S:
        reason = f"the forward pass takes {1e3 * seconds:.2g} ms: to send the inputs again costs no more"
    elif use.lost:
        reason = NO_ROOM
    return Linearization(point, wrt, outputs, residuals), reason


def _first_part(evaluation: Evaluation[Derivatives], residuals: Residuals) -> tuple[Derivatives, Use]:
    with using(residuals, is_first_part_only=True) as use:
        return evaluation.finish(compute([evaluation])[0]), use


def _bare(point: Point, wrt: Sequence[str]) -> Linearization:
    """Return a linearization that keeps nothing."""
    forward = derivatives.forward(point)
    return Linearization(point, wrt, forward.finish(compute([forward])[0]), Residuals(0, lambda size: False))


def _rows(directions: Arrays | None, field: str) -> list[dict[str, Array]]:
    """Return each direction along the leading axis; raise ``Unprocessable`` unless all arrays have as many."""
    counts = {name: len(x) if x.ndim else None for name, x in (directions or {}).items()}
    count = next(iter(counts.values()), None)
    if not count or set(counts.values()) != {count}:
        expected = "a leading axis of directions, as long in all"
        raise wrong((field,), "the number of directions differs", expected=expected, got=str(counts or "none"))
    return [{name: x[i] for name, x in (directions or {}).items()} for i in range(count)]


def _stacked(rows: Sequence[Array | Absent]) -> Array | Absent:
    first = rows[0]
    return first if isinstance(first, Absent) else np.stack([row for row in rows if not isinstance(row, Absent)])
