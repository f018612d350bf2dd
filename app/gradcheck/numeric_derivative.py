"""The numeric derivative at a point, with error bars: of an op, or of what its gradient claims to be.

The first order is that of ⟨c, y⟩, for cotangents c of the outputs; the second is that of ⟨dx, v⟩, where dx is the op's
own vjp at c. An error bar is the largest difference that the numeric error and the rounding of a right derivative
explain: the one that the gradient checks allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from app.autodiff.absent import Absent
from app.autodiff.binding import need_order
from app.autodiff.derivatives import forward, vjp
from app.autodiff.derived import DerivedOp
from app.autodiff.point import Arrays, Point
from app.autodiff.widest import all_cotangents, in_widest
from app.errors import wrong
from app.gradcheck import points
from app.gradcheck.claims import claim_function, claim_of, claim_rows, formula_values, need_own_claim
from app.gradcheck.comparison import estimate_inside, first_step, limits
from app.gradcheck.objective import Function, Objective, move_all, move_one, move_together
from app.gradcheck.rows import Rows, numbers_of
from app.gradcheck.sample import Sample
from app.runtime.cancellation import Checkpoint
from ops import Array, Derivative, Formula, Surrogate
from pullback.gradcheck.numeric import COVERAGE, MAX_STEPS, Functions, Status, slopes

# The evaluations of one derivative, and about how many numbers are evaluated at a time.
EVALUATIONS, AT_ONCE = 2 * MAX_STEPS + 1, 1 << 20
NO_DERIVATIVE = (Status.KINK, Status.JUMP, Status.NOT_FINITE)


@dataclass(frozen=True)
class Wanted:
    """What to differentiate: the order, the cotangents (``None`` for ones), and with respect to what.

    Without ``tangents``, the derivatives are those with respect to each number of the inputs ``wrt``; with tangents,
    the only one is that along them. At the second order they are v; without them, v is 1 in ``wrt`` and 0 elsewhere.
    With ``claim``, the function that the author claims for the gradient takes the place of the op. ``work`` is the most
    numbers to evaluate.
    """

    order: Literal[1, 2]
    wrt: Sequence[str]
    cotangents: Arrays | None = None
    tangents: Arrays | None = None
    claim: bool = False
    work: int = 1 << 24


@dataclass(frozen=True)
class Derivatives:
    """Derivatives, their error bars and their statuses, all of one shape."""

    derivative: Array
    error_bar: Array
    status: Array

    @classmethod
    def of(cls, derivative: Array, error_bar: Array, status: Array) -> "Derivatives":
        """Return derivatives with NaN and an infinite bar where there is none."""
        has_none = np.isin(status, NO_DERIVATIVE)
        text = np.vectorize(str, otypes=[object])(status) if status.size else status
        return cls(np.where(has_none, np.nan, derivative), np.where(has_none, np.inf, error_bar), text)

    def document(self, shape: tuple[int, ...] = ()) -> dict[str, Any]:
        """Return the derivatives as JSON, in a shape."""
        return {name: np.reshape(value, shape).tolist() for name, value in vars(self).items()}


def numeric(point: Point, wanted: Wanted, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the derivatives at a point, as JSON; the error bars are for derivatives in the dtype of the point.

    Raises ``Unprocessable`` if the op has no such derivative, or for directions of other shapes.
    """
    _check(point, wanted)
    wide = in_widest(point)
    work = _Work(_sample(wide, wanted), wanted, point.spec.dtype, checkpoint)
    live = wide.spec.inputs.differentiable
    found: dict[str, Any] = {}
    if wanted.tangents is None:
        found["derivatives"] = {
            name: work.by_number(name).document(wide.inputs[name].shape) if name in live else None
            for name in wanted.wrt
        }
    else:
        found["along"] = work.along(wanted.tangents).document()
    return {
        "op": point.op.name,
        "order": wanted.order,
        "of": work.of,
        "dtype": point.op.shown_dtype(point.spec.dtype),
        "computed_in": point.op.shown_dtype(work.sample.precise_dtype),
        **found,
    }


def _check(point: Point, wanted: Wanted) -> None:
    """Raise ``Unprocessable`` for a derivative that the op does not have, for wrong shapes and for too much work."""
    if not any(name in point.spec.inputs.differentiable for name in wanted.wrt):
        expected = f"some of {', '.join(point.spec.inputs.differentiable) or 'no inputs'}, which are differentiable"
        message = f"nothing to differentiate in {point.spec.dtype}"
        raise wrong(("wrt",), message, expected=expected, got=", ".join(wanted.wrt))
    if not point.spec.outputs.differentiable:
        message = f"op {point.op.name} has no differentiable output in {point.spec.dtype}"
        raise wrong(("dtype",), message, expected="an op with a gradient", got=point.op.name)
    if isinstance(point.op, DerivedOp):
        _check_derived(point, wanted)
    need_order(point.op, point.spec.attrs, wanted.order)
    _ = vjp(point, tuple(wanted.wrt), wanted.cotangents, batched=False, outputs=False)
    for name, tangent in (wanted.tangents or {}).items():
        if tangent.shape != (shape := point.inputs[name].shape):
            got = str(list(tangent.shape))
            raise wrong(("tangents", name), "shape mismatch", expected=str(list(shape)), got=got)
    point.admit_work(EVALUATIONS)
    each = max(numbers_of(point), point.cost) if point.spec.batching != "elementwise" else 2
    live = [name for name in wanted.wrt if name in point.spec.inputs.differentiable]
    count = sum(point.inputs[name].size for name in live) if wanted.tangents is None else 1
    if (work := EVALUATIONS * each * count) > wanted.work:
        message = f"{count} derivatives evaluate {work} numbers; request some (wrt), or one along tangents"
        raise wrong(("inputs",), message, expected=f"at most {wanted.work}", got=str(work))


def _check_derived(point: Point, wanted: Wanted) -> None:
    """Raise ``Unprocessable`` for what a derived op may lack: a claim, and some of its outputs."""
    name = point.op.name
    if wanted.claim:
        message = f"op {name} is derived, and has no claim"
        raise wrong(("claim",), message, expected="false, or a registered op", got="true")
    for output, y in forward(point).run().items():
        if isinstance(y, Absent):
            message = f"output {output} of op {name} does not exist ({y.replace('_', ' ')})"
            raise wrong(("inputs",), message, expected="an op with all of its outputs", got=name)


def _sample(point: Point, wanted: Wanted) -> Sample:
    """Return the sample with the cotangents, and with the vectors of the second order."""
    inputs, are_ones = point.spec.inputs, wanted.wrt if wanted.tangents is None else ()
    vectors = {
        name: inputs.ones(name, x.shape) if name in are_ones else np.zeros_like(x)
        for name, x in point.inputs.items()
        if name in inputs.differentiable
    }
    vectors |= {name: v.astype(point.inputs[name].dtype) for name, v in (wanted.tangents or {}).items()}
    last = "gradients" if wanted.order == 1 else "products"
    return Sample(point, all_cotangents(point, wanted.cotangents), vectors, last=last)


@dataclass(frozen=True)
class _Work:
    """The numeric derivatives of one request; the error bars are for derivatives in ``dtype``."""

    sample: Sample
    wanted: Wanted
    dtype: str
    checkpoint: Checkpoint

    @cached_property
    def claim(self) -> Surrogate | Formula | None:
        """What the gradient claims to be, ``None`` for the op itself."""
        if self.wanted.claim:
            need_own_claim(self.sample.point.op, self.sample.point.spec.attrs)
        claim = claim_of(self.sample, self.wanted.order) if self.wanted.claim else Derivative()
        return None if isinstance(claim, Derivative) else claim

    @property
    def of(self) -> str:
        """What is differentiated; a formula is itself the derivative."""
        if self.claim is not None:
            return type(self.claim).__name__.lower()
        return "forward" if self.wanted.order == 1 else "vjp"

    def by_number(self, name: str) -> Derivatives:
        """Return the derivatives with respect to each number of an input."""
        if isinstance(self.claim, Formula):
            value, error = self._formula
            return self._known(value[name], error[name] + self._bar(name))
        x = np.asarray(self.sample.point.inputs[name], np.float64).ravel()
        if not x.size:
            return Derivatives(x, x, x)
        analytic, bar = self._analytic(name).ravel(), self._bar(name).ravel()
        if self.sample.is_elementwise:
            return self._estimate(
                move_all(self._objective, name), self._step(name, x), analytic, bar, self._sides(name, x)
            )
        few = max(1, AT_ONCE // (EVALUATIONS * numbers_of(self.sample.point)))
        parts = list[Derivatives]()
        for start in range(0, x.size, few):
            some = np.arange(start, min(start + few, x.size))
            functions = move_one(self._objective, name, some)
            at = self._step(name, x[some]), analytic[some], bar[some], self._sides(name, x[some])
            parts.append(self._estimate(functions, *at))
        names = ("derivative", "error_bar", "status")
        return Derivatives(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def along(self, direction: Arrays) -> Derivatives:
        """Return the derivative along a direction."""
        d = {name: np.asarray(v, np.float64) for name, v in direction.items()}
        bar = np.asarray([sum(float(np.sum(np.abs(v) * self._bar(name))) for name, v in d.items())])
        if isinstance(self.claim, Formula):
            value, error = self._formula
            total = sum(float(np.sum(value[name] * v)) for name, v in d.items())
            return self._known(
                np.asarray([total]), bar + sum(float(np.sum(error[x] * np.abs(v))) for x, v in d.items())
            )
        analytic = np.asarray([sum(float(np.sum(self._analytic(name) * v)) for name, v in d.items())])
        steps, ways = list[float](), set[float]()
        for name, v in d.items():
            if v.any():
                x = np.asarray(self.sample.point.inputs[name], np.float64)
                ways |= set(np.sign(self._sides(name, x) * v).ravel().tolist()) - {0.0}
                steps.append(float(self._step(name, np.abs(x).max(keepdims=True).ravel())[0] / np.abs(v).max()))
        step = 2.0 ** np.floor(np.log2(min(steps, default=1.0)))
        sides = np.asarray([ways.pop() if len(ways) == 1 else 0.0])
        functions = move_together(self._objective, d)
        return self._estimate(functions, np.asarray([step]), analytic, bar, sides, is_whole=True)

    def _estimate(
        self,
        functions: Functions,
        step: Array,
        analytic: Array,
        bar: Array,
        sides: Array,
        *,
        is_whole: bool = False,
    ) -> Derivatives:
        """Return the slopes of functions; ``bar`` is the rounding of the ``analytic`` derivatives."""
        error = self._objective.rounding(elementwise=self.sample.is_elementwise and not is_whole)
        estimate = partial(slopes, functions, rounding=error, **limits(self._objective.dtype))
        with np.errstate(all="ignore"):
            found = estimate_inside(estimate, sides, step, analytic, bar)
            return Derivatives.of(found.value, COVERAGE * found.error + bar, found.status)

    @staticmethod
    def _known(value: Array, error_bar: Array) -> Derivatives:
        status = np.where(np.isfinite(value), Status.OK, Status.NOT_FINITE).astype(object)
        return Derivatives.of(value, error_bar, status)

    def _step(self, name: str, x: Array) -> Array:
        return first_step(self.sample.point.op, name, x)

    def _sides(self, name: str, x: Array) -> Array:
        return points.sides(self.sample.point.op, name, x)

    @property
    def _kind(self) -> str:
        return "gradients" if self.wanted.order == 1 else "products"

    def _analytic(self, name: str) -> Array:
        return np.asarray(self.sample.values[self._kind, name], np.float64)

    def _bar(self, name: str) -> Array:
        return np.asarray(self.sample.error_bound((self._kind, name), self.dtype), np.float64)

    @cached_property
    def _objective(self) -> Objective:
        """What is differentiated, with its weights."""
        sample, is_first = self.sample, self.wanted.order == 1
        weights, values = (sample.cotangents, "outputs") if is_first else (sample.vectors, "gradients")
        if isinstance(self.claim, Surrogate):
            bounds, dtype = sample.error_bounds(values, sample.point.spec.dtype), sample.point.spec.dtype
            return Objective(claim_rows(sample, self.wanted.order), sample.inputs, weights, bounds, dtype)
        rows, dtype = Rows(sample.point, self.checkpoint, precise=sample.is_precise), sample.precise_dtype

        def own_vjp(inputs: Arrays) -> Arrays:
            count = len(next(iter(inputs.values())))
            return rows.vjp(
                inputs, {name: np.broadcast_to(dy, (count, *dy.shape)) for name, dy in sample.cotangents.items()}
            )

        function: Function = rows.forward if is_first else own_vjp
        return Objective(function, sample.inputs, weights, sample.error_bounds(values, dtype), dtype)

    @cached_property
    def _formula(self) -> tuple[Arrays, Arrays]:
        """The values of the formula, and bounds on their rounding."""
        formula = claim_function(self.sample, self.wanted.order)
        return formula_values(formula, self.sample.inputs, elementwise=self.sample.is_elementwise)
