"""The functions of a claim: arguments in the op's order, floats as float64; results by name."""

import numpy as np

from app.autodiff.derivatives import output_shapes
from app.autodiff.derived import DerivedOp
from app.autodiff.point import Arrays, blame_op
from app.errors import wrong
from app.gradcheck import reference, rounding
from app.gradcheck.objective import Function
from app.gradcheck.reference import as_float64
from app.gradcheck.rows import stack
from app.gradcheck.sample import Sample
from ops import Array, Attrs, Derivative, Formula, Op, Surrogate, many


def need_own_claim(op: Op, attrs: Attrs) -> None:
    """Raise ``Unprocessable`` for a vjp whose derivative is what its op claims as second order, in terms of the op."""
    if not isinstance(op, DerivedOp):
        return
    with blame_op(op, "claim"):
        first = op.claim(attrs).first
    if not isinstance(first, Derivative):
        message = f"the derivative of {op.name} is what op {op.of.name} claims as its second order, not that of forward"
        raise wrong(("op",), message, expected=f"the checks of op {op.of.name}, which compare it", got=op.name)


def claim_of(sample: Sample, order: int) -> Derivative | Surrogate | Formula:
    """Return what the gradient of an order claims to be."""
    claim = sample.claim.first if order == 1 else sample.claim.second
    assert claim is not None, "a second order that is declared missing is not checked"
    return claim


def claim_function(sample: Sample, order: int, cotangents: Arrays | None = None) -> Function:
    """Return the function of a surrogate or formula, at the cotangents of the sample or at others.

    It takes some inputs; the others keep their values. A first surrogate returns the differentiable outputs. All others
    return a value for each differentiable input, zeros for ``None``.
    """
    point, claim = sample.point, claim_of(sample, order)
    assert not isinstance(claim, Derivative)
    is_surrogate, at = isinstance(claim, Surrogate), list(map(as_float64, point.inputs.values()))
    slots, like = point.op.inputs, sample.vectors
    if is_surrogate and order == 1:
        slots, like = point.op.outputs, sample.cotangents
    dys = sample.cotangents if cotangents is None else cotangents
    all_dys = [dys[y.name] if y.name in dys else np.zeros(output_shapes(point)[y.name]) for y in point.op.outputs]
    all_vectors = [sample.vectors.get(name, np.zeros(x.shape)) for name, x in point.inputs.items()]
    more = [[as_float64(x) for x in named] for named in (all_dys, all_vectors)][: order - is_surrogate]

    def function(inputs: Arrays) -> dict[str, Array]:
        xs = [as_float64(inputs.get(name, x)) for name, x in point.inputs.items()]
        shape = np.broadcast_shapes(*(x.shape for x in xs)) if sample.is_elementwise else None
        with blame_op(point.op, "claim"), np.errstate(all="ignore"):
            results = claim.of(xs, *more, at) if isinstance(claim, Surrogate) else claim.vjp(xs, *more)
            named = {slot.name: value for slot, value in zip(slots, many(results), strict=True) if slot.name in like}
            return {
                name: np.broadcast_to(
                    np.asarray(0 if value is None else value, np.float64), like[name].shape if shape is None else shape
                )
                for name, value in named.items()
            }

    return function


def formula_values(formula: Function, inputs: Arrays, *, elementwise: bool) -> tuple[Arrays, Arrays]:
    """Return the values of a formula in float64, and a bound on the rounding of each."""
    wide = {name: np.asarray(x, np.float64) for name, x in inputs.items()}
    measured = rounding.measure(
        lambda sets: list(map(formula, sets)),
        wide,
        np.random.default_rng(0),
        elementwise=elementwise,
        terms=reference.terms(formula, wide),
    )
    return formula(wide), {name: rounding.eps("float64") * each for name, each in measured.bounds.items()}


def claim_rows(sample: Sample, order: int) -> Function:
    """Return the function of a surrogate or formula as a function of many points, rows first."""
    function = claim_function(sample, order)

    def of_rows(inputs: Arrays) -> Arrays:
        count = len(next(iter(inputs.values())))
        return stack([function({name: x[i] for name, x in inputs.items()}) for i in range(count)])

    return function if sample.is_elementwise else of_rows
